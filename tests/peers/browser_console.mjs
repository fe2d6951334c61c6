// A person at the console, in a real Chromium: `node browser_console.mjs --sdk FOLDER --scratch FOLDER --url URL STORY [WORD...]`.
// Prints what was seen as one JSON object. Fails on any error in the page, a refused resource included.

import { load } from "./agent_client_sdk.mjs";

const argv = process.argv.slice(2);
const option = (name) => argv.splice(argv.indexOf(`--${name}`), 2)[1];
const sdk = option("sdk");
const scratch = option("scratch");
const url = option("url");
const [story, ...words] = argv;

process.env.TMPDIR = scratch; // where the browser is unpacked, once
const { default: shipped } = await load(sdk, "@sparticuz/chromium");
const { chromium } = (await load(sdk, "playwright-core")).default;
const browser = await chromium.launch({ executablePath: await shipped.executablePath(), args: shipped.args });
const page = await browser.newPage({ colorScheme: story === "dark" ? "dark" : "light", viewport: { width: 1200, height: 800 } });
page.setDefaultTimeout(20000);
const wrong = [];
page.on("pageerror", (error) => wrong.push(String(error)));
page.on("console", (message) => message.type() === "error" && !/status of 40[0-9]/.test(message.text()) && wrong.push(message.text()));
page.on("dialog", (dialog) => { wrong.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
page.on("request", (request) => !request.url().startsWith(url) && !request.url().startsWith("data:") && wrong.push(`asks ${request.url()}`));

const STORIES = {
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
  async attempt(agent, protocol, text) {
    await page.goto(`${url}/ui/#/try?agent=${agent}`);
    await page.selectOption("label:has-text('protocol') select", protocol);
    await page.fill("textarea[name=message], textarea[name=answer]", text);
    await page.click("text=Send");
    await page.waitForSelector("text=The runs of this agent");
    return { said: await page.textContent("[aria-live] pre") };
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
  // A run of very many events: how soon something is seen, how much is held, and whether its end is.
  async long(run) {
    await page.goto(`${url}/ui/#/protocols`);
    await page.waitForSelector("h1:has-text('Protocols')");
    const began = performance.now();
    await page.evaluate((id) => { location.hash = `#/run/${id}`; }, run);
    await page.waitForSelector("summary");
    const seconds = (performance.now() - began) / 1000;
    await page.waitForSelector("summary:has-text('run finished')", { timeout: 60000 });
    const whole = (performance.now() - began) / 1000;
    const heap = await page.evaluate(() => performance.memory.usedJSHeapSize);
    return { seconds, whole, heap, rows: await page.$$eval("summary", (all) => all.length) };
  },
  async picture(hash, file, wait) {
    await page.goto(`${url}/ui/#/${hash}`);
    await page.waitForSelector(wait);
    await page.screenshot({ path: file });
    return {};
  },
};
STORIES.dark = STORIES.picture;

try {
  const seen = await STORIES[story](...words);
  if (wrong.length) throw new Error(wrong.join("\n"));
  console.log(JSON.stringify(seen));
} finally {
  await browser.close();
}
