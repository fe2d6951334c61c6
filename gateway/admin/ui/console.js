// The console: which page is shown, and the pages.

import { Refused, events, get, keepToken, post } from "./api.js";
import { Columns } from "./columns.js";
import { fields } from "./forms.js";
import { Log } from "./log.js";
import { trial } from "./try.js";
import { definitions, duration, el, json, moment, renew, size, status, table, tell } from "./view.js";

const REFRESH = 2000;
const PAGE = 50;
const STATUSES = ["pending", "running", "interrupted", "success", "error", "cancelled", "timeout"];
const main = document.getElementById("main");
let leaving = new AbortController(); // aborted when another page is shown
let showing = ""; // its path
let again = null; // takes another query of the page that is shown, if that can be told one

// --- which page ---------------------------------------------------------------------------------------------------

// A page returns a function for another query of its own, or nothing where it is shown anew for that.
const PAGES = { runs: listOfRuns, run: oneRun, agents: listOfAgents, try: trial, protocols: matrix };

function asked() {
  const [path, query] = location.hash.slice(2).split("?");
  return [path || "runs", new URLSearchParams(query)];
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  again = null;
  const { signal } = leaving;
  const [path, query] = asked();
  const [name, ...rest] = path.split("/");
  const draw = PAGES[name] ?? listOfRuns;
  for (const link of document.querySelectorAll("nav a")) {
    const here = link.hash === `#/${name}` || (name === "run" && link.hash === "#/runs");
    here ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  main.replaceChildren(el("p", { class: "faint" }, "…"));
  try {
    const another = await draw(signal, query, ...rest.map(decodeURIComponent));
    if (signal.aborted) return;
    [showing, again] = [path, another];
    title();
  } catch (error) {
    failed(error, signal);
  }
}

function title() {
  document.title = `${main.querySelector("h1")?.textContent ?? "Console"} · Interlingua`;
}

function failed(error, signal) {
  if (signal.aborted) return;
  leaving.abort();
  again = null;
  if (error instanceof Refused && error.status === 401) {
    const input = el("input", { type: "password", autocomplete: "off", required: true });
    main.replaceChildren(el("h1", {}, "Who are you?"), el("p", {}, error.message),
      el("form", { class: "filter", onsubmit: (event) => { event.preventDefault(); keepToken(input.value); show(); } },
        el("label", {}, "Your operator's token", input), el("button", { class: "main" }, "Enter")));
    input.focus();
  } else {
    main.replaceChildren(el("h1", {}, "This cannot be shown"), el("p", { class: "wrong" }, error.message),
      el("button", { onclick: show }, "Try again"));
  }
}

// Calls `work` every moment while the page is shown and looked at.
function repeatedly(work, signal) {
  const again = async () => {
    if (signal.aborted) return;
    if (!document.hidden) await work().catch((error) => { if (!signal.aborted) tell(error.message); });
    setTimeout(again, REFRESH);
  };
  setTimeout(again, REFRESH);
}

// --- runs ---------------------------------------------------------------------------------------------------------

async function listOfRuns(signal, query) {
  const [{ agents }, { protocols }] = await Promise.all([get("/admin/agents", {}, signal), get("/admin/protocols", {}, signal)]);
  const hash = (changed) => `#/runs?${new URLSearchParams(Object.entries({ ...Object.fromEntries(asked()[1]), ...changed }).filter(([, value]) => value))}`;
  const go = ({ target }) => { location.hash = hash({ [target.name]: target.value.trim(), offset: "" }); };
  const pick = (name, values) => el("label", {}, name, el("select", { name, onchange: go },
    el("option", { value: "" }, "any"), values.map((value) => el("option", { value }, value))));
  const text = (name, label) => el("label", {}, label, el("input", { name, onchange: go }));
  const counted = el("p", { class: "faint" });
  const place = el("div");
  const pages = el("p");
  const filters = el("form", { class: "filter", onsubmit: (event) => event.preventDefault() },
    pick("agent", agents.map((agent) => agent.name)), pick("protocol", protocols.map((one) => one.name)),
    pick("status", STATUSES), text("thread", "thread"), text("principal", "person"));
  for (const field of filters) field.value = query.get(field.name) ?? "";
  main.replaceChildren(el("h1", {}, "Runs"), filters, counted, place, pages);
  let drawn = "";
  const refresh = async () => {
    const of = query;
    const found = await get("/admin/runs", { ...Object.fromEntries(of), limit: PAGE }, signal);
    const now = JSON.stringify(found);
    if (now === drawn || of !== query) return;
    const offset = Number(of.get("offset") ?? 0);
    drawn = now;
    counted.textContent = `${found.count} runs`;
    renew(place, table(["run", "agent", "from", "status", "begun", { text: "took", number: true }, "person", "lost"],
      found.runs.map((run) => [
        el("a", { href: `#/run/${encodeURIComponent(run.id)}` }, run.id.slice(0, 8) + "…" + run.id.slice(-4)), run.agent, run.protocol,
        status(run.status), moment(run.created_at), STATUSES.indexOf(run.status) > 2 ? duration(run.updated_at - run.created_at) : "",
        run.principal, losses(run.losses),
      ]), "Runs, newest first"));
    const step = (to, name) => el("a", { href: hash({ offset: String(to) }) }, name);
    renew(pages, offset > 0 && step(Math.max(0, offset - PAGE), "newer"), " ", offset + PAGE < found.count && step(offset + PAGE, "older"));
  };
  await refresh();
  repeatedly(refresh, signal);
  return (another) => { // what is entered in a field stays, unless the address has another value for it
    for (const field of filters) if (query.get(field.name) !== another.get(field.name)) field.value = another.get(field.name) ?? "";
    query = another;
    drawn = "";
    return refresh();
  };
}

function losses(lost) {
  const names = Object.entries(lost ?? {});
  return names.length ? el("span", { class: "lost" }, names.map(([name, count]) => `${name}${count > 1 ? ` ×${count}` : ""}`).join(", ")) : "";
}

async function oneRun(signal, query, id) {
  const path = `/admin/runs/${encodeURIComponent(id)}`;
  const head = el("div");
  const ends = el("div");
  const first = await get(path, {}, signal);
  const trace = /^https?:/.test(first.trace ?? "") && first.trace; // the configuration's, of whom nobody else has a word
  const log = first.recorded ? new Columns() : new Log();
  main.replaceChildren(el("h1", {}, `Run ${id}`), head, el("h2", {}, first.recorded ? "What was said" : "Events"),
    first.recorded ? el("p", { class: "faint" }, "Without secrets, in the memory of the process that drove it, and gone with that.") : recording(first.agent),
    log.left, log.element, ends);
  const draw = (run) => {
    renew(head, definitions([
      ["status", status(run.status)], ["agent", run.agent], ["from", run.protocol], ["person", run.principal],
      ["thread", run.thread && el("a", { href: `#/runs?${new URLSearchParams({ thread: run.thread })}` }, run.thread)],
      ["begun", moment(run.created_at)], ["trace", trace ? el("a", { href: trace, rel: "noreferrer" }, run.traceparent.split("-")[1]) : run.traceparent?.split("-")[1]],
      ["stopped", run.stop_reason ?? run.cancel_reason], ["failure", run.failure && `${run.failure.code}: ${run.failure.message}`],
      ["lost", losses(run.losses)],
    ]), run.interrupts.map((asked) => question(path, asked)), STATUSES.indexOf(run.status) < 3 &&
      el("p", {}, el("button", { onclick: () => post(`${path}/cancel`, {}).then(draw, (error) => tell(error.message)) }, "Cancel this run")));
    renew(ends, el("h2", {}, "Input"), shown(run.input), el("h2", {}, "Output"), shown(run.output));
  };
  draw(first);
  const failed = (error) => { if (!signal.aborted) tell(error.message); };
  follow(path, log, draw, signal).catch(failed);
  if (first.recorded) listen(`${path}/wire`, log, signal).catch((error) => { log.over(); failed(error); });
}

// Offers to record what is said to an agent.
function recording(agent) {
  const record = () => post("/admin/recording", { agent, record: true }).then(
    ({ limits, unheard }) => tell(`Runs of ${agent} that begin within 10 minutes are recorded: ${size(limits.run_bytes)} of each.` +
      (unheard ? ` Processes that have not heard of it: ${unheard}.` : "")), (error) => tell(error.message));
  return el("p", { class: "faint" }, "What its client and its agent said was not recorded. ",
    el("button", { onclick: record }, `Record the next runs of ${agent}`));
}

// What was recorded, then whatever comes, over lost connections too.
async function listen(path, columns, signal) {
  let last = 0;
  for (;;) {
    const page = await get(path, { after: last }, signal);
    if (!page.entries.length) break;
    columns.said(page.entries);
    last = page.last;
  }
  while (!signal.aborted) {
    try {
      for await (const { id, event, data } of events(`${path}?after=${last}`, { signal })) {
        if (event === "over") return columns.over();
        columns.said([JSON.parse(data)]);
        last = Number(id);
      }
    } catch (error) {
      if (signal.aborted || error instanceof Refused) throw error;
      tell("The connection is lost; trying again.");
    }
    await new Promise((resolve) => setTimeout(resolve, REFRESH));
  }
}

function shown(part) {
  return "document" in part ? json(part.document) : el("p", { class: "faint" }, `${size(part.bytes)}: too large to show here.`);
}

// The log from its beginning, then whatever comes, over lost connections too.
async function follow(path, log, draw, signal) {
  let last = 0;
  for (;;) {
    const page = await get(`${path}/events`, { after: last }, signal);
    if (!page.events.length) break;
    for (const { number, event } of page.events) log.add(number, event);
    last = page.last;
  }
  for (;;) {
    try {
      for await (const { id, event, data } of events(`${path}/events?after=${last}`, { signal })) {
        if (event === "run") {
          draw(await get(path, {}, signal));
          return;
        }
        const said = JSON.parse(data);
        last = Number(id);
        log.add(last, said);
        if (["interrupted", "resumed", "run_started"].includes(said.event)) draw(await get(path, {}, signal));
      }
    } catch (error) {
      if (signal.aborted || error instanceof Refused) throw error;
      tell("The connection is lost; trying again.");
    }
    await new Promise((resolve) => setTimeout(resolve, REFRESH));
    if (signal.aborted) return;
  }
}

function question(path, asked) {
  const options = asked.payload?.options ?? [];
  const titles = new Map((Array.isArray(options) ? options : []).map((option) => [option.optionId ?? option.id ?? option.value, option.name ?? option.title ?? option.label]));
  const [inputs, value] = fields(asked.answer_schema, titles);
  const send = async (event, outcome) => {
    event.preventDefault();
    try {
      await post(`${path}/answer`, outcome ? { outcome, interrupt: asked.id } : { value: await value(), interrupt: asked.id });
      tell("Answered.");
    } catch (error) {
      tell(error.message);
    }
  };
  return el("section", { id: `question-${asked.id}`, class: "question", "aria-label": "A question waits" },
    el("h2", {}, asked.message || `The agent asks (${asked.kind})`),
    el("details", {}, el("summary", {}, "The question as the agent put it"), json(asked.payload ?? null)),
    el("form", { class: "answer", onsubmit: (event) => send(event) }, inputs,
      el("button", { class: "main" }, "Answer"),
      el("button", { type: "button", onclick: (event) => send(event, "declined") }, "Decline")));
}

// --- agents and protocols -----------------------------------------------------------------------------------------

async function listOfAgents(signal) {
  const place = el("div");
  const lost = el("div");
  main.replaceChildren(el("h1", {}, "Agents"), place, el("p", {},
    el("button", { onclick: () => post("/admin/reload", {}).then(() => tell("The route table is read again."), (error) => tell(error.message)) }, "Read the route table again")), lost);
  let drawn = "";
  const refresh = async () => {
    const [{ agents }, found] = await Promise.all([get("/admin/agents", {}, signal), get("/admin/losses", {}, signal)]);
    const now = JSON.stringify([agents, found]);
    if (now === drawn) return;
    drawn = now;
    renew(place, table(["agent", "speaks", "where", "ready", { text: "now", number: true }, { text: "ended", number: true },
      { text: "half within", number: true }, { text: "95% within", number: true }, "can", ""],
    agents.map((agent) => [
      el("span", {}, el("a", { href: `#/runs?${new URLSearchParams({ agent: agent.name })}` }, agent.name), agent.governed && " (governed)",
        agent.description && el("br"), agent.description && el("span", { class: "faint" }, agent.description)),
      agent.protocol, places(agent), readiness(agent), agent.active,
      Object.entries(agent.ended).map(([word, count]) => `${count} ${word}`).join(", "),
      duration(agent.seconds.p50), duration(agent.seconds.p95),
      Object.entries(agent.capabilities ?? {}).filter(([, can]) => can === true).map(([name]) => name).join(", "),
      el("a", { href: `#/try?${new URLSearchParams({ agent: agent.name })}`, "aria-label": `try ${agent.name}` }, "try"),
    ]), "Agents, and how their runs went since the gateway started"));
    renew(lost, found.losses.length > 0 && [el("h2", {}, "Lost since the gateway started"),
      table(["agent", "protocol", "what", { text: "times", number: true }, "why"],
        found.losses.map((one) => [one.agent, one.protocol, one.what, one.count, one.why]), "Losses")]);
  };
  await refresh();
  repeatedly(refresh, signal);
}

const TURNED = { open: "ejected", tried: "is tried" };

/** Whether an agent is there, and why not. */
function readiness(agent) {
  const why = !agent.ready && !agent.targets.some((one) => one.reason) && agent.reason;
  return el("span", {}, status(agent.ready ? "ready" : "away"), why && el("span", { class: "faint" }, ` ${why}`));
}

/** Where an agent is, and which of the places get no runs, and why. */
function places(agent) {
  if (agent.targets.length === 0) return agent.target;
  return el("span", {}, ...agent.targets.flatMap((one, at) => [at > 0 && el("br"), one.target,
    one.state !== "closed" && el("span", { class: "faint" }, ` ${TURNED[one.state]}: ${one.reason}`),
    one.unlike && el("span", { class: "faint" }, ` gets no runs: ${one.reason}`)]));
}

async function matrix(signal) {
  const { protocols } = await get("/admin/protocols", {}, signal);
  const served = protocols.filter((one) => one.door);
  const called = protocols.filter((one) => one.calls);
  main.replaceChildren(el("h1", {}, "Protocols"),
    el("p", {}, "Any client of one reaches any agent of another. What a protocol has no word for is counted under these names."),
    table(["clients \\ agents", ...called.map((one) => one.title)], served.map((client) => [client.title,
      ...called.map((agent) => (agent === client ? "nothing is lost" : [...Object.keys(client.losses), ...Object.keys(agent.losses)]
        .filter((name, at, all) => all.indexOf(name) === at).join(", ") || "nothing is named"))]), "What may be lost between a client and an agent"),
    ...protocols.map((one) => el("section", {}, el("h2", {}, one.title),
      definitions([["clients", one.door ? `served at ${one.door}` : "not served here"], ["agents", one.calls ? "called" : "not called"]]),
      Object.keys(one.losses).length > 0 && table(["lost", "why"], Object.entries(one.losses), `What ${one.title} cannot say`))));
}

// --------------------------------------------------------------------------------------------------------------------

get("/admin").then((found) => {
  document.getElementById("who").textContent = found.operator ?? "on this machine";
}, () => {});
addEventListener("hashchange", async () => {
  const [path, query] = asked();
  const { signal } = leaving;
  const same = again && path === showing;
  if (!same || !document.activeElement.form) main.focus(); // who is at a field goes on there
  if (!same) return show();
  try {
    await again(query);
    title();
  } catch (error) {
    failed(error, signal);
  }
});
show();
