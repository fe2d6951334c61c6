// A person at the console, in a real Chromium: `node browser_console.mjs --sdk FOLDER --scratch FOLDER [unpack]`.
// On standard input comes what is to be done, a line of JSON each: {url, story, words}; what was seen is a line, too:
// {seen}, or {error}, of any error in the page, a refused resource included. Each story has a profile of its own.

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { load } from "./agent_client_sdk.mjs";

const argv = process.argv.slice(2);
const option = (name) => argv.splice(argv.indexOf(`--${name}`), 2)[1];
const sdk = option("sdk");
const scratch = option("scratch");

process.env.TMPDIR = scratch; // where the browser is unpacked, once
const { default: shipped, inflate } = await load(sdk, "@sparticuz/chromium");
const { chromium } = (await load(sdk, "playwright-core")).default;
const executablePath = await shipped.executablePath();
// Its libraries and fonts come with it: few machines have them all. Its own list of fonts names folders of Lambda.
const libraries = await inflate(join(sdk, "node_modules/@sparticuz/chromium/bin/al2023.tar.br"));
process.env.LD_LIBRARY_PATH = join(libraries, "lib");
process.env.FONTCONFIG_FILE = join(scratch, "fonts.conf");
if (argv[0] === "unpack") {
  await writeFile(process.env.FONTCONFIG_FILE, '<fontconfig><dir prefix="relative">fonts</dir></fontconfig>');
  process.exit();
}
// As it is shipped it is a single process, which ends with its first profile. Nothing here needs to be drawn fast.
const args = shipped.args.filter((one) => !["--single-process", "--no-zygote"].includes(one));
args.push("--disable-gpu", "--disable-software-rasterizer", "--process-per-site", "--renderer-process-limit=1");
const browser = await chromium.launch({ executablePath, args });
let url;
let context;
let page;

const STORIES = {
  // What an agent's row says of whether it is there.
  async readiness(agent) {
    await page.goto(`${url}/ui/#/agents`);
    await page.waitForSelector(`tr:has(a:text-is("${agent}")) .away`);
    return { cell: await page.textContent(`tr:has(a:text-is("${agent}")) td:has(.away)`) };
  },
  // The question of a run is found, read and answered; the run is followed to its end without a click.
  async answer(run, choice) {
    await page.goto(`${url}/ui/#/runs?status=interrupted`);
    await page.click(`a[href="#/run/${run}"]`);
    await page.waitForSelector(".question select");
    const choices = await page.$$eval(".question option", (all) => all.map((one) => one.textContent));
    await page.selectOption(".question select", { label: choice });
    await page.click(".question button.main");
    await page.waitForSelector("dd .success");
    await page.waitForSelector("summary:has-text('run finished')");
    return { choices, rows: await page.$$eval("summary", (all) => all.map((one) => one.textContent)), left: await page.$$eval(".question", (all) => all.length) };
  },
  // A recorded run as three columns: who said what, in order, before and after its question is answered in the form.
  async columns(run, choice) {
    await page.goto(`${url}/ui/#/run/${run}`);
    await page.waitForSelector(".question select");
    await page.waitForSelector(".columns summary:has-text('session/request_permission')");
    const rows = () => page.$$eval(".columns [role=row]:not(.head)", (all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
    const asked = await rows();
    await page.selectOption(".question select", { label: choice });
    await page.click(".question button.main");
    await page.waitForSelector(".columns summary:has-text('run finished')");
    await page.waitForSelector(".columns summary:has-text('answer to session/prompt')");
    const box = await page.$eval(".columns", (one) => [one.scrollHeight, one.clientHeight, one.scrollTop]);
    // By the keyboard: the columns scroll as one, a message opens and closes.
    await page.focus(".columns");
    const head = await page.$eval(".columns .head", (one) => one.getBoundingClientRect().top);
    await page.keyboard.press("Home");
    await page.waitForFunction(() => document.querySelector(".columns").scrollTop === 0);
    const stays = await page.$eval(".columns .head", (one) => one.getBoundingClientRect().top);
    await page.focus(".columns summary");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".columns details[open] pre");
    const opened = await page.$$eval(".columns details[open] pre", (all) => all.map((one) => one.textContent));
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => !document.querySelector(".columns details[open]"));
    const lists = await page.$$eval(".columns .plan", (all) => all.map((one) => [...one.children].map((item) => item.textContent)));
    return { asked, rows: await rows(), opened, lists, box, moved: head - stays, heads: await page.$$eval(".columns [role=columnheader]", (all) => all.map((one) => one.textContent)) };
  },
  // The run's route goes while it is watched, then the page is loaded again: the run is seen, and answered, as before.
  async departed(run, choice) {
    await page.goto(`${url}/ui/#/run/${run}`);
    const drawn = async () => { // the newest event, and the newest message
      await page.waitForSelector(".columns summary:has-text('asks:')");
      await page.waitForFunction(() => [...document.querySelectorAll(".columns summary")].filter((one) => one.textContent.includes("200 application/json")).length === 2);
    };
    await drawn();
    const rows = () => page.$$eval(".columns [role=row]:not(.head)", (all) => all.map((row) => [...row.children].slice(1).map((cell) => cell.textContent)));
    const before = await rows();
    const agents = await page.evaluate(async () => (await (await fetch("/admin/reload", { method: "POST", headers: { "content-type": "application/json" } })).json()).agents.length);
    await page.reload();
    await drawn();
    const after = await rows();
    await page.selectOption(".question select", { label: choice });
    await page.click(".question button.main");
    await page.waitForSelector(".columns summary:has-text('run finished')");
    return { before, after, agents };
  },
  // A page that nobody looks at gets no frames: nothing is drawn while much is said.
  async asleep(run) {
    await page.addInitScript(() => { window.requestAnimationFrame = () => 1; });
    await page.goto(`${url}/ui/#/run/${run}`);
    await page.waitForSelector(".columns summary, .log summary", { timeout: 60000 });
    await page.waitForFunction(() => document.querySelector("dd .success"));
    const until = performance.now() + 60000;
    let rows = -1;
    for (let found = 0; rows !== found && performance.now() < until;) {
      rows = found;
      found = await page.evaluate(() => new Promise((seen) => { setTimeout(() => seen(document.querySelectorAll("summary").length), 1000); }));
    }
    return { rows, heap: await page.evaluate(() => performance.memory.usedJSHeapSize) };
  },
  async record(run) {
    await page.goto(`${url}/ui/#/run/${run}`);
    await page.click("text=Record the next runs of");
    await page.waitForSelector("#told:has-text('are recorded')");
    return { columns: await page.$$eval(".columns", (all) => all.length) };
  },
  // A person is at the second of a run's two questions while another answers the first, and at the run in the list when it ends; then at
  // the filters, of which one is chosen while another is half entered, and at an agent to try, where another one is chosen.
  async redrawn(run) {
    const operator = (what, body) => page.evaluate(([path, said]) => fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(said) }), [`/admin/runs/${run}/${what}`, body]);
    const focused = () => page.evaluate(() => { const { nodeName, value, hash } = document.activeElement; return [nodeName, value ?? hash]; });
    await page.goto(`${url}/ui/#/run/${run}`);
    const [first, second] = [0, 1].map((at) => page.locator(".question").nth(at));
    await second.locator("summary").click();
    await second.locator("select").selectOption("2");
    await second.locator("select").focus();
    const interrupt = (await first.getAttribute("id")).slice("question-".length);
    await operator("answer", { interrupt, outcome: "declined" });
    await second.waitFor({ state: "detached" });
    const asked = [...await focused(), await first.locator("details[open]").count()];
    await page.goto(`${url}/ui/#/runs?agent=flood`);
    await page.focus(`a[href="#/run/${run}"]`);
    await operator("cancel", {});
    await page.waitForSelector("tr:first-child .cancelled");
    const listed = await focused();
    const values = () => page.$$eval(".filter [name]", (all) => Object.fromEntries(all.filter((one) => one.value).map((one) => [one.name, one.value])));
    const count = (runs) => page.waitForSelector(`main > p.faint:text-is('${runs} runs')`);
    await page.focus("input[name=thread]");
    await page.keyboard.type("half");
    await page.selectOption("select[name=agent]", "gardener");
    await page.waitForFunction(() => ![...document.querySelectorAll("main tbody tr")].some((row) => row.textContent.includes("flood")));
    await page.keyboard.type(" a thread");
    const filtered = [await values(), (await focused())[0]];
    await page.keyboard.press("Tab");
    await count(0);
    filtered.push(await values(), new URL(page.url()).hash);
    await page.goBack();
    await page.waitForFunction(() => document.querySelector("input[name=thread]").value === "");
    filtered.push(await values());
    await page.goto(`${url}/ui/#/try?agent=flood`);
    await page.waitForSelector("h1:has-text('Try flood')");
    await page.fill("input[name=token]", "hers");
    await page.selectOption("select[name=protocol]", "agent_context");
    await page.focus("select[name=agent]");
    await page.keyboard.press("g");
    await page.waitForSelector("h1:has-text('Try gardener')");
    const tried = [...await focused(), await page.title(), await page.inputValue("input[name=token]"), await page.inputValue("select[name=protocol]")];
    return { asked, listed, filtered, tried };
  },
  async cancel(run) {
    await page.goto(`${url}/ui/#/run/${run}`);
    await page.click("text=Cancel this run");
    await page.waitForSelector("dd .cancelled");
    return { cancellable: await page.isVisible("text=Cancel this run") };
  },
  // By the keyboard alone: past the link that skips, through the navigation.
  async keys() {
    await page.goto(`${url}/ui/`);
    await page.waitForSelector("h1:has-text('Runs')");
    const seen = [];
    for (const name of ["Runs", "Agents", "Try", "Protocols"]) {
      await page.focus("a.skip");
      for (let tabs = 0; (await page.evaluate(() => document.activeElement.textContent)) !== name; tabs += 1) {
        if (tabs > 6) throw new Error(`${name} is not reached by the Tab key`);
        await page.keyboard.press("Tab");
      }
      await page.keyboard.press("Enter");
      await page.waitForFunction((wanted) => document.querySelector("h1")?.textContent.startsWith(wanted), name);
      await page.waitForSelector("main table, main dl, main button.main");
      seen.push(await page.textContent("main"));
      // In one go: $$eval finds first and looks later, and what was drawn anew meanwhile has no labels.
      const bare = await page.evaluate(() => [...document.querySelectorAll("main input, main select, main textarea")].filter((one) => !one.labels.length).length);
      if (bare) throw new Error(`${name} has ${bare} fields without a label`);
    }
    return { seen };
  },
  // Turns with agents, each {protocol, agent, say, files, answer, cancel, token, operator, again}; what was seen of each. say: text, or
  // what is filled in by the fields' names. again: in the conversation of the turn before. cancel: once this text, or this
  // class, is seen, or a URL is asked for that ends so (a text that begins with a slash). held: what is asked of a path that ends
  // so comes after the cancel. answer: "decline", or what is filled in, of each question.
  async talk(turns) {
    const seen = [];
    for (const { protocol, agent, say, files, answer, cancel, held, token, operator, again } of JSON.parse(turns)) {
      if (!again) {
        await page.goto("about:blank");
        await page.goto(`${url}/ui/#/try?agent=${agent}`);
        if (operator && (await page.locator("h1:has-text('Try'), h1:has-text('Who')").first().innerText()).startsWith("Who")) {
          await page.fill("input[type=password]", operator);
          await page.click("text=Enter");
        }
        await page.selectOption("select[name=protocol]", protocol);
        if (token) await page.fill("input[name=token]", token);
      }
      for (const [name, text] of Object.entries(typeof say === "string" ? { "message],form > label > textarea[name=text": say } : say)) await page.fill(`form > label > [name=${name}]`, text);
      if (files) await page.setInputFiles("input[name=files]", files);
      const asking = cancel?.startsWith("/") ? page.waitForRequest((request) => request.url().endsWith(cancel)) : null;
      let press;
      const pressed = new Promise((resolve) => { press = resolve; });
      const ends = (address) => address.pathname.endsWith(held);
      if (held) await page.route(ends, async (route) => { await pressed; await route.continue(); });
      await page.click("button:text-is('Send')");
      const turn = page.locator("section.turn").last();
      const question = turn.locator(".question");
      const end = turn.locator("p.wrong, p.faint:has-text('Done'), p.faint:has-text('Stopped')");
      const asked = [];
      if (cancel) {
        await (asking ?? turn.locator(cancel.startsWith(".") ? cancel : `text=${cancel}`).first().waitFor());
        await page.click("button:text-is('Cancel')");
        press();
      }
      let at = 0;
      for (; !(await end.count()); await question.or(end).first().waitFor()) {
        if (!(await question.count())) continue; // one that has just been answered was still there
        asked.push(await question.innerText());
        if (answer === "decline") {
          await question.locator("button:text-is('Decline')").click();
          await question.waitFor({ state: "detached" });
          continue;
        }
        const given = answer[at] ?? answer.at(-1);
        at += 1;
        for (const [name, value] of Object.entries(given)) {
          const field = question.locator(`[name=${name}]`);
          const kind = await field.evaluate((one) => one.type);
          if (kind === "checkbox") await field.setChecked(value);
          else await (kind.startsWith("select") ? field.selectOption({ label: value }) : field.fill(value));
        }
        const box = await question.elementHandle();
        await question.locator("button.main").click();
        await box.waitForElementState("hidden");
      }
      const saved = [];
      for (const button of await turn.locator("button.file").all()) {
        const [download] = await Promise.all([page.waitForEvent("download"), button.click()]);
        saved.push({ name: download.suggestedFilename(), text: await readFile(await download.path(), "utf8") });
      }
      seen.push({ elements: await turn.locator("img, script, b, a").count(), said: await turn.locator("pre[aria-live]").innerText(), asked, saved, end: await end.first().innerText(),
        error: await turn.locator("p.wrong + pre").allInnerTexts(), beside: await turn.locator(".beside").innerText() });
    }
    return { seen };
  },
  // A form of a schema is filled in by the fields' names and submitted; its value, or the first field that the browser refuses.
  async form(schema, filled, added) {
    await page.goto(`${url}/ui/#/try`);
    await page.waitForSelector("h1:has-text('Try')");
    await page.evaluate(async (asked) => {
      const { fields } = await import("/ui/forms.js");
      const form = document.createElement("form");
      const [inputs, value] = fields(asked);
      form.append(...inputs.flat(9), document.createElement("button"));
      form.onsubmit = async (event) => { event.preventDefault(); window.found = await value(); };
      document.getElementById("main").replaceChildren(form);
    }, JSON.parse(schema));
    for (const name of JSON.parse(added)) await page.click(`button:text-is('Add to ${name}')`);
    for (const [name, value] of JSON.parse(filled)) {
      const field = page.locator(`[name="${name}"]`).first();
      const kind = await field.evaluate((one) => one.type);
      if (kind === "checkbox") await page.getByLabel(value, { exact: true }).check();
      else if (kind === "file") await field.setInputFiles(value);
      else await (kind.startsWith("select") ? field.selectOption({ label: value }) : field.fill(value));
    }
    await page.click("form > button:last-child");
    const refused = await page.evaluate(() => document.querySelector("main :invalid:not(form):not(fieldset)")?.name ?? null);
    if (refused === null) await page.waitForFunction(() => "found" in window);
    const bare = await page.evaluate(() => [...document.querySelectorAll("main input, main select, main textarea")].filter((one) => !one.labels.length).length);
    return { refused, value: refused === null ? await page.evaluate(() => window.found) : null, bare };
  },
  // Every page and every client: how many bytes of them come from the gateway.
  async weight() {
    const sizes = new Map();
    const coming = [];
    page.on("response", (response) => response.ok() && coming.push(response.body().then((body) => sizes.set(new URL(response.url()).pathname, body.length), () => {})));
    for (const name of ["runs", "agents", "try", "protocols"]) {
      await page.goto(`${url}/ui/#/${name}`);
      await page.waitForSelector("main h1");
    }
    await page.evaluate(async () => { for (const one of await (await fetch("/admin/protocols")).json().then((found) => found.protocols)) await import(`/ui/clients/${one.name}.js`).catch(() => {}); });
    await page.waitForLoadState("networkidle");
    await Promise.all(coming);
    return { sizes: Object.fromEntries([...sizes].filter(([path]) => path.startsWith("/ui/"))) };
  },
  // What others say is text: nothing of it becomes an element, and nothing turns around what stands beside it.
  async hostile(run) {
    await page.goto(`${url}/ui/#/run/${run}`);
    await page.waitForSelector("summary");
    for (const summary of await page.$$("summary")) await summary.click();
    return {
      text: await page.textContent("main"),
      elements: await page.$$eval("main img, main script, main iframe, main b, main a[href^='javascript:']", (all) => all.length),
    };
  },
  async token(bad, good) {
    await page.goto(`${url}/ui/`);
    const enter = async (token) => { await page.fill("input[type=password]", token); await page.click("text=Enter"); };
    await enter(bad);
    await page.waitForSelector("text=the token is not valid");
    await enter(good);
    await page.waitForSelector("h1:has-text('Runs')");
    return { cookies: (await page.context().cookies()).length };
  },
  // A list of very many runs: how soon it is seen, how many it says there are and shows, the next page, and those of an agent that has none.
  async list(agent) {
    await page.goto(`${url}/ui/#/protocols`);
    await page.waitForSelector("h1:has-text('Protocols')");
    const rows = () => page.$$eval("main tbody tr a", (all) => all.map((one) => one.getAttribute("href")));
    const began = performance.now();
    await page.evaluate(() => { location.hash = "#/runs"; });
    await page.waitForSelector("main tbody tr");
    const seconds = (performance.now() - began) / 1000;
    const first = await rows();
    const counted = await page.innerText("main > p.faint");
    await page.click("text=older");
    await page.waitForSelector(`main tbody tr:first-child a:not([href="${first[0]}"])`);
    const second = await rows();
    await page.selectOption("select[name=agent]", agent);
    await page.waitForSelector("main > p.faint:text-is('0 runs')");
    return { seconds, counted, first, second, filtered: (await rows()).length };
  },
  // The route of a run that asks is taken out of the file and the file read again, in another tab, while the run is watched.
  async gone(run, file, table) {
    await page.goto(`${url}/ui/#/run/${run}`);
    await page.waitForSelector(".question select");
    const other = await context.newPage();
    await other.goto(`${url}/ui/#/agents`);
    await other.waitForSelector("tbody tr:has-text('gardener')");
    await writeFile(file, table);
    await other.click("text=Read the route table again");
    await other.waitForSelector("tbody tr:has-text('successor')");
    const agents = await other.$$eval("tbody tr td:first-child a", (all) => all.map((one) => one.textContent));
    await page.selectOption(".question select", { label: "Plant it" });
    await page.click(".question button.main");
    await page.waitForSelector("dd .success");
    return { agents, left: await page.$$eval(".question", (all) => all.length) };
  },
  // A run of very many events: how soon something is seen at each of two visits, how much is held, and whether its end is.
  async long(run) {
    const seconds = [];
    let whole;
    for (let visit = 0; visit < 2; visit += 1) {
      await page.goto(`${url}/ui/#/protocols`);
      await page.waitForSelector("h1:has-text('Protocols')");
      const began = performance.now();
      await page.evaluate((id) => { location.hash = `#/run/${id}`; }, run);
      await page.waitForSelector("summary");
      seconds.push((performance.now() - began) / 1000);
      await page.waitForSelector("summary:has-text('run finished')", { timeout: 60000 });
      whole = (performance.now() - began) / 1000;
    }
    const heap = await page.evaluate(() => performance.memory.usedJSHeapSize);
    return { seconds, whole, heap, rows: await page.$$eval("summary", (all) => all.length) };
  },
  async picture(hash, file, wait, at) {
    await page.goto(`${url}/ui/#/${hash}`);
    await page.waitForSelector(wait);
    if (at) await page.$eval(at, (one) => one.scrollIntoView());
    await page.screenshot({ path: file });
    return {};
  },
};
STORIES.dark = STORIES.picture;

async function told(story, words) {
  context = await browser.newContext({ colorScheme: story === "dark" ? "dark" : "light", viewport: { width: 1200, height: 800 } });
  page = await context.newPage();
  page.setDefaultTimeout(60000);
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("console", (message) => message.type() === "error" && !/status of 40[0-9]/.test(message.text()) && wrong.push(message.text()));
  page.on("dialog", (dialog) => { wrong.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  const own = url;
  page.on("request", (request) => !request.url().startsWith(own) && !request.url().startsWith("data:") && wrong.push(`asks ${request.url()}`));
  try {
    const seen = await STORIES[story](...words);
    if (wrong.length) throw new Error(wrong.join("\n"));
    return { seen };
  } catch (error) {
    return { error: `${await page.innerText("main").catch(() => "no page")}\n${error.stack}` };
  } finally {
    await context.close();
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { story, words, ...where } = JSON.parse(line);
  url = where.url;
  console.log(JSON.stringify(await told(story, words)));
}
await browser.close();
