// The page that talks to an agent as a client of a protocol.
//
// A client is a module in clients/, loaded when it is chosen. `connect({door, agent, token, signal})` returns one
// conversation: `send({input, text, files, cancel, out})` has one turn and returns why the agent stopped, if it says
// so, and `close()` ends it. text: the input where it is no more than a text, else null. cancel: a signal, aborted when
// the person cancels. signal: aborted when the conversation is left. Errors are thrown in the protocol's words (Failed).

import { Failed, HOME, get } from "./api.js";
import { fields } from "./forms.js";
import { clean, el, json, renew, tell } from "./view.js";

const CLIENTS = ["agent_connect", "agent_protocol", "agent_client", "agent_communication", "agent_context"];
const TEXT = 200000; // characters of an answer that are shown
const EVENTS = 300; // events of a turn that are shown
const CANCELLED = { outcome: "cancelled" };

export async function trial(signal, query) {
  const main = document.getElementById("main");
  const [{ agents }, { protocols }] = await Promise.all([get("/admin/agents", {}, signal), get("/admin/protocols", {}, signal)]);
  const served = protocols.filter((one) => one.door && CLIENTS.includes(one.name));
  if (!agents.length || !served.length) {
    main.replaceChildren(el("h1", {}, "Try"), el("p", {}, "There is no agent, or no protocol that this page speaks is served."));
    return;
  }
  const [head, about, takes, runs] = [el("h1"), el("p", { class: "faint" }), el("span"), el("a", {}, "The runs of this agent")];
  const chosen = el("select", { name: "agent", onchange: () => { location.hash = `#/try?${new URLSearchParams({ agent: chosen.value })}`; } },
    agents.map((one) => el("option", { value: one.name }, one.name)));
  const protocol = el("select", { name: "protocol" }, served.map((one) => el("option", { value: one.name }, one.title)));
  const token = el("input", { type: "password", name: "token", autocomplete: "off", placeholder: "where the door asks for one" });
  const files = el("input", { type: "file", name: "files", multiple: true });
  const send = el("button", { class: "main" }, "Send");
  const cancel = el("button", { type: "button", disabled: true }, "Cancel");
  const anew = el("button", { type: "button", disabled: true }, "New conversation");
  const talk = el("div", { role: "log", "aria-label": "The conversation" });
  let [agent, inputs, value] = [null, [], null];
  let conversation = null;
  let left = new AbortController(); // aborted when the conversation is left
  let stop = new AbortController();

  const forget = () => {
    left.abort();
    left = new AbortController();
    conversation?.close();
    conversation = null;
    send.disabled = false;
    cancel.disabled = anew.disabled = true;
    talk.replaceChildren();
  };
  const speak = async (event) => {
    event.preventDefault();
    const { signal: here } = left;
    stop = new AbortController();
    send.disabled = true;
    let turn;
    try {
      const input = await value();
      const text = textOf(input, agent.text_input);
      turn = new Turn(text ?? JSON.stringify(input, null, 2), [...files.files], stop.signal);
      talk.append(turn.element);
      if (!conversation) {
        const { connect } = await import(`./clients/${protocol.value}.js`);
        const made = await connect({ door: HOME + served.find((one) => one.name === protocol.value).door, agent, token: token.value, signal: here });
        if (here.aborted) return made.close();
        conversation = made;
      }
      cancel.disabled = anew.disabled = false;
      turn.end(await conversation.send({ input, text, files: [...files.files], cancel: stop.signal, out: turn }));
      files.value = "";
    } catch (error) {
      if (here.aborted) return;
      turn ? turn.wrong(error) : tell(error.message);
    } finally {
      if (!here.aborted) [send.disabled, cancel.disabled] = [false, true];
    }
  };
  for (const changed of [protocol, token]) changed.addEventListener("change", forget);
  cancel.addEventListener("click", () => stop.abort());
  anew.addEventListener("click", forget);
  signal.addEventListener("abort", forget);
  const attached = el("label", {}, takes, files);
  const take = (another) => { // the agent that the address names; protocol and token stay
    forget();
    agent = agents.find((one) => one.name === another.get("agent")) ?? agents[0];
    chosen.value = agent.name;
    for (const input of inputs) input.remove();
    [inputs, value] = fields(agent.input_schema ?? {});
    inputs = inputs.flat(Infinity).filter(Boolean);
    attached.before(...inputs);
    head.textContent = clean(`Try ${agent.name}`);
    about.textContent = clean(agent.description ?? "");
    const types = agent.capabilities?.files?.join(", ");
    takes.textContent = clean(types ? `files (the agent takes ${types})` : "files (the agent names none that it takes)");
    files.value = "";
    runs.setAttribute("href", `#/runs?${new URLSearchParams({ agent: agent.name })}`);
  };
  main.replaceChildren(head, about,
    el("form", { class: "answer", onsubmit: speak },
      el("label", {}, "agent", chosen), el("label", {}, "protocol", protocol), el("label", {}, "client's token", token), attached,
      send, cancel, anew),
    talk, el("p", {}, runs));
  take(query);
  return take;
}

// The input if it is nothing but a text, at the place that the agent has for it; else null.
function textOf(input, pointer) {
  if (typeof input === "string") return input;
  const [name, ...others] = Object.keys(input ?? {});
  return pointer === `/${name}` && !others.length && typeof input[name] === "string" ? input[name] : null;
}

async function fetched(url, headers) {
  const response = await fetch(url, { headers });
  if (!response.ok) throw new Failed(`${response.status}: ${await response.text()}`);
  return response.blob();
}

function decoded(uri) {
  const [type, data] = uri.slice("data:".length).split(",");
  const bytes = type.endsWith(";base64") ? Uint8Array.from(atob(data), (one) => one.charCodeAt(0)) : decodeURIComponent(data);
  return new Blob([bytes], { type: type.replace(";base64", "") });
}

// One turn of a conversation, as the page shows it: `out` of a client.
class Turn {
  constructor(asked, files, cancelled) {
    this.said = "";
    this.events = 0;
    this.frame = null;
    this.last = null; // the event that was shown last
    this.cancelled = cancelled;
    this.answer = el("pre", { tabindex: "0", "aria-live": "polite" });
    this.beside = el("div", { class: "beside" });
    this.element = el("section", { class: "turn" }, el("pre", { class: "asked" }, asked, files.map((file) => `\n📎 ${file.name}`)), this.beside, this.answer);
    this.result = el("p", { class: "faint" }, "…");
    this.element.append(this.result);
  }

  // Shows a piece of text behind what was said.
  text(piece) {
    if (this.said.length < TEXT) this.said += piece;
    this.draw();
  }

  // Shows all that was said so far, a document.
  output(value) {
    if (value === undefined) return;
    const [name, ...others] = value && typeof value === "object" ? Object.keys(value) : [];
    const only = name !== undefined && !others.length && typeof value[name] === "string" ? value[name] : value;
    this.said = typeof only === "string" ? only : JSON.stringify(value, null, 2);
    this.draw();
    for (const file of Array.isArray(value?.artifacts) ? value.artifacts : []) if (file?.url) this.file(file.name, file.url);
  }

  draw() {
    this.frame ??= requestAnimationFrame(() => this.drawn());
  }

  drawn() {
    this.frame = null;
    this.answer.textContent = clean(this.said.length > TEXT ? `${this.said.slice(0, TEXT)} …` : this.said);
  }

  // Shows what an agent does beside what it says. Thoughts that follow one another are one.
  event(name, value) {
    if (typeof value === "string" && this.last?.name === name) {
      if (this.last.value.length < TEXT) this.last.value += value;
      renew(this.last.body, json(this.last.value));
      return;
    }
    this.events += 1;
    if (this.events > EVENTS) return;
    const body = el("div", {}, json(value));
    const title = value?.title ?? value?.name;
    this.last = { name, value, body };
    this.beside.append(el("details", {}, el("summary", {}, title ? `${name}: ${title}` : name), body));
  }

  // Offers a file. headers: what its server wants to be shown.
  file(name, url, headers = {}) {
    const key = `${name} ${url}`;
    this.files ??= new Set();
    if (this.files.has(key)) return;
    this.files.add(key);
    const { origin, protocol } = new URL(url, location.href);
    if (protocol !== "data:" && origin !== location.origin) {
      const there = ["http:", "https:"].includes(protocol) ? el("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, name) : name;
      this.beside.append(el("p", {}, there, el("span", { class: "faint" }, ` ${url}`)));
      return;
    }
    const save = async () => {
      try {
        const blob = protocol === "data:" ? decoded(url) : await fetched(url, headers);
        const link = el("a", { href: URL.createObjectURL(blob), download: name || "file" });
        link.click();
        setTimeout(() => URL.revokeObjectURL(link.href), 60000);
      } catch (error) {
        tell(`${name}: ${error.message}`);
      }
    };
    this.beside.append(el("p", {}, el("button", { type: "button", class: "file", onclick: save }, `Save ${name || "a file"}`)));
  }

  // Asks the person: {outcome: answered, declined or cancelled; value}. schema: of the answer. declines: whether the
  // protocol has a word for declining. withdrawn: a signal, aborted when the question is not asked any more.
  ask({ message, schema, payload, declines = false }, withdrawn) {
    const [inputs, value] = fields(schema);
    return new Promise((resolve) => {
      const done = (answer) => {
        box.remove();
        resolve(answer);
      };
      const answered = async (event) => {
        event.preventDefault();
        try {
          done({ outcome: "answered", value: await value() });
        } catch (error) {
          tell(error.message);
        }
      };
      const box = el("section", { class: "question", "aria-label": "A question waits" }, el("h2", {}, message),
        payload != null && el("details", {}, el("summary", {}, "The question as the agent put it"), json(payload)),
        el("form", { class: "answer", onsubmit: answered }, inputs, el("button", { class: "main" }, "Answer"),
          declines && el("button", { type: "button", onclick: () => done({ outcome: "declined" }) }, "Decline")));
      for (const signal of [this.cancelled, withdrawn]) signal?.addEventListener("abort", () => done(CANCELLED));
      this.element.insertBefore(box, this.result);
      box.querySelector("input, select, textarea, button").focus();
      if (this.cancelled.aborted) done(CANCELLED);
    });
  }

  end(stopped) {
    this.drawn();
    const left = this.events > EVENTS ? ` ${this.events - EVENTS} more events are on the page of the run.` : "";
    this.result.textContent = clean(`${stopped && stopped !== "end_turn" ? `Stopped: ${stopped}.` : "Done."}${left}`);
  }

  wrong(error) {
    this.drawn();
    this.result.replaceWith(el("p", { class: "wrong" }, error.message || String(error)), error.said !== undefined ? json(error.said) : "");
  }
}
