import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { openPage, startBrowser, startServer } from "./support.mjs";

let server;
let browser;
before(async () => {
  server = await startServer();
  browser = await startBrowser();
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const box = "textarea[aria-label='Your message']";
const answers = ".message.assistant:not([aria-busy])";

async function ask(page, text) {
  const had = await page.locator(answers).count();
  await page.fill(box, text);
  await page.keyboard.press("Enter");
  await page.locator(answers).nth(had).waitFor();
}

test("the files have types, a policy and a tag; only they need no key", async () => {
  const locked = await startServer("--api-key", "secret");
  try {
    for (const [path, type] of [["/", "text/html"], ["/app.js", "text/javascript"], ["/app.css", "text/css"],
      ["/icon.svg", "image/svg+xml"]]) {
      const response = await fetch(locked.url + path);
      assert.equal(response.status, 200);
      assert.ok(response.headers.get("content-type").startsWith(type));
      const policy = response.headers.get("content-security-policy");
      assert.ok(policy.includes("default-src 'none'") && policy.includes("script-src 'self';"));
      assert.ok(!policy.includes("unsafe"));
      assert.equal(response.headers.get("x-content-type-options"), "nosniff");
      const again = await fetch(locked.url + path, { headers: { "If-None-Match": response.headers.get("etag") } });
      assert.equal(again.status, 304);
      assert.equal((await again.text()).length, 0);
    }
    for (const path of ["/status", "/metrics", "/v1/models", "/index.html", "/app.js/"])
      assert.equal((await fetch(locked.url + path)).status, 401, path);
  } finally {
    await locked.stop();
  }
});

test("an answer streams, is counted, made again, edited, and kept", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  await page.goto(`${server.url}/`);
  await ask(page, "Speak, speak.");
  const figures = await page.locator(".figures").innerText();
  assert.match(figures, /40 tokens/);
  assert.match(figures, /tokens\/s/);
  assert.match(figures, /[\d.]+ (k|M)B weights \+ [\d.]+ (k|M)?B KV per token/);
  const first = await page.locator(".message.assistant .body").innerText();
  assert.ok(first.length > 20);
  await page.getByRole("button", { name: "Another answer" }).click();
  await page.locator(answers).waitFor();
  assert.equal(await page.locator(".message.assistant .body").innerText(), first); // one seed, one answer
  await page.getByRole("button", { name: "Edit and ask again" }).click();
  await page.fill(".editor textarea", "Who goes there?");
  await page.getByRole("button", { name: "Ask again" }).click();
  await page.locator(answers).waitFor();
  assert.equal(await page.locator(".message.user .body").innerText(), "Who goes there?");
  assert.notEqual(await page.locator(".message.assistant .body").innerText(), first);
  await page.reload();
  await page.getByRole("button", { name: "Who goes there?", exact: true }).click();
  assert.equal(await page.locator(".message").count(), 2);
  assert.deepEqual(wrong, []);
  await close();
});

test("a stopped answer stays, and the server is told", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  await page.goto(`${server.url}/`);
  // Stays open until the page gives it up.
  await page.evaluate(() => {
    const real = window.fetch;
    window.fetch = (path, init) => path !== "/v1/chat/completions" ? real(path, init) :
      Promise.resolve(new Response(new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode('data: {"choices":[{"delta":{"content":"To be"}}]}\n\n'));
          init.signal.addEventListener("abort", () => {
            window.told = true;
            controller.error(init.signal.reason);
          });
        },
      })));
  });
  await page.fill(box, "Go on");
  await page.keyboard.press("Enter");
  await page.getByText("To be").waitFor();
  await page.getByRole("button", { name: "Stop the answer" }).click();
  await page.locator(answers).waitFor();
  assert.match(await page.locator(".figures").innerText(), /stopped by you/);
  assert.equal(await page.evaluate(() => window.told), true);
  assert.deepEqual(wrong, []);
  await close();
});

test("what a model says is never run", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  const text = ["# Title", "<img src=x onerror='window.hacked=1'> <script>window.hacked=1</script>",
    "<svg onload='window.hacked=1'></svg> <style>*{display:none}</style> <form action=//e.example><input></form>",
    "[click](javascript:window.hacked=1) [data](data:text/html,x) [fine](https://example.org/) ![p](https://e.example/p.png)",
    "```js\nif (a < b) { run(); }\n```", "| a | b |\n|---|---|\n| 1 | **2** |"].join("\n\n");
  await page.route("**/v1/chat/completions", (route) => route.fulfill({ contentType: "text/event-stream",
    body: `data: ${JSON.stringify({ choices: [{ delta: { content: text }, finish_reason: "stop" }] })}\n\ndata: [DONE]\n\n` }));
  await page.goto(`${server.url}/`);
  await ask(page, "Be evil");
  const body = page.locator(".message.assistant .prose");
  assert.equal(await body.locator("img, script, style, svg, form, input, iframe").count(), 0);
  assert.deepEqual(await body.locator("a[href]").evaluateAll((all) => all.map((one) => one.getAttribute("href"))),
    ["https://example.org/"]);
  assert.equal(await body.locator("a[href]").getAttribute("rel"), "noopener noreferrer");
  assert.match(await body.innerText(), /<img src=x onerror=/); // shown as it was said
  assert.equal(await body.locator("pre").innerText(), "if (a < b) { run(); }\n");
  assert.equal(await body.locator("td strong").innerText(), "2");
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.deepEqual(wrong, []);
  await close();
});

test("marks without end are shown as they were said", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  let text = "";
  await page.route("**/v1/chat/completions", (route) => route.fulfill({ contentType: "text/event-stream",
    body: `data: ${JSON.stringify({ choices: [{ delta: { content: text }, finish_reason: "stop" }] })}\n\ndata: [DONE]\n\n` }));
  await page.goto(`${server.url}/`);
  // Each took the page minutes, or its stack, once.
  for (const one of ["[x](", "[a](<b", "[a](b(", "*a ", "_a ", "*[a](", "> ", "1. ", "> - "]) {
    text = one.repeat(4000);
    await page.reload();
    await ask(page, "Go on");
    assert.ok((await page.locator(".message.assistant .prose").innerText()).includes(text.slice(0, 1000).trim()), one);
  }
  text = "Some **bold** words.\n\n" + "[x](".repeat(2000) + "\n\n- a [link](https://example.org/)";
  await page.reload();
  await ask(page, "And now");
  assert.equal(await page.locator(".message.assistant .prose strong").innerText(), "bold");
  assert.equal(await page.locator(".message.assistant .prose li a").innerText(), "link");
  assert.deepEqual(wrong, []);
  await close();
});

test("an answer goes on while there is room, and the oldest turns make it", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  await page.addInitScript(() => localStorage.removeItem("nibble.sampling"));
  const bodies = [];
  page.on("request", (request) => {
    if (request.url().endsWith("/v1/chat/completions")) bodies.push(request.postDataJSON());
  });
  await page.goto(`${server.url}/`);
  await ask(page, "Speak, speak."); // of a model whose context has 256 tokens
  await ask(page, "Go on.");
  await ask(page, "And then?");
  assert.ok(bodies.every((one) => one.max_tokens === undefined && one.truncation === "auto"));
  assert.equal(await page.locator(".message .error").count(), 0);
  assert.match(await page.locator(".figures").last().innerText(), /without the \d+ oldest messages: the context is full/);
  assert.deepEqual(wrong, []);
  await close();
});

test("all answers of a request have its colour", async () => {
  const response = await fetch(`${server.url}/v1/completions`, { method: "POST",
    body: JSON.stringify({ prompt: "ROMEO:", n: 3, max_tokens: 4, ignore_eos: true }) });
  assert.equal(response.status, 200);
  const { page, close } = await openPage(browser, server.url);
  await page.goto(`${server.url}/#/live`);
  const blocks = page.locator(".batch .strip i");
  await blocks.nth(1).waitFor();
  const classes = await blocks.evaluateAll((all) => all.map((one) => one.className.split(" ")[0]));
  assert.equal(new Set(classes).size, 1);
  await close();
});

test("a refusal is shown as the server says it", async () => {
  const { page, close } = await openPage(browser, server.url);
  await page.goto(`${server.url}/`);
  await ask(page, "word ".repeat(2000));
  assert.match(await page.locator(".message .error").innerText(), /tokens/);
  const sent = page.waitForRequest("**/v1/chat/completions");
  await ask(page, "Short now");
  const { messages } = (await sent).postDataJSON();
  assert.deepEqual(messages.map((one) => one.role), ["user"]); // the failed answer is no turn
  assert.ok(messages[0].content.endsWith("word \n\nShort now"));
  await close();
});

test("the key is asked for, checked, and kept in the tab only", async () => {
  const locked = await startServer("--api-key", "secret");
  const { page, close } = await openPage(browser, locked.url);
  await page.goto(`${locked.url}/`);
  await page.fill("#key", "wrong");
  await page.keyboard.press("Enter");
  await page.getByText("not one of this server's").waitFor();
  await page.fill("#key", "secret");
  await page.keyboard.press("Enter");
  await page.locator(".dot.ok").waitFor();
  await ask(page, "Speak");
  assert.equal(await page.locator(".message .error").count(), 0);
  assert.equal(await page.evaluate(() => JSON.stringify(localStorage).includes("secret")), false);
  await close();
  await locked.stop();
});

test("every view fits, in both schemes, and names what it has", async () => {
  for (const [width, colorScheme] of [[1440, "light"], [390, "dark"]]) {
    const { page, wrong, close } = await openPage(browser, server.url, { viewport: { width, height: 844 }, colorScheme });
    await page.goto(`${server.url}/`);
    await ask(page, "Speak");
    for (const view of await page.locator("nav a").evaluateAll((all) => all.map((one) => one.getAttribute("href")))) {
      await page.goto(`${server.url}/${view}`);
      await page.locator(`nav a[href='${view}'][aria-current]`).waitFor();
      await page.waitForLoadState("networkidle");
      const found = await page.evaluate(() => ({
        over: document.documentElement.scrollWidth - innerWidth,
        nameless: [...document.querySelectorAll("button, input, select, textarea, a[href], [role=img]")].filter((one) =>
          !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length || one.title)).map((one) => one.outerHTML),
        twice: [...document.querySelectorAll("[id]")].map((one) => one.id).filter((id, i, all) => all.indexOf(id) !== i),
      }));
      assert.deepEqual(found, { over: 0, nameless: [], twice: [] }, `${view} at ${width}`);
    }
    assert.deepEqual(wrong, []);
    await close();
  }
});

test("by keyboard alone", async () => {
  const { page, close } = await openPage(browser, server.url);
  await page.goto(`${server.url}/#/live`);
  await page.locator(".stat").first().waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  await page.locator("nav a").first().focus();
  await page.keyboard.press("Enter");
  await page.locator(box).waitFor();
  await close();
});

test("Live shows what ran", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  await page.goto(`${server.url}/`);
  await ask(page, "Speak");
  await page.goto(`${server.url}/#/live`);
  await page.getByText("KV pages").first().waitFor();
  const chart = page.locator("figure", { hasText: "Between tokens" }).locator("svg[role=img]");
  await chart.waitFor();
  assert.match(await chart.getAttribute("aria-label"), /p50 [\d.]+ (ms|s)/);
  assert.deepEqual(wrong, []);
  await close();
});

test("the planner opens on the document's case, with its figures", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  await page.goto(`${server.url}/#/planner`);
  await page.getByText("Where the bytes of one decode step go").waitFor();
  const text = await page.locator(".planner-answer").innerText();
  for (const figure of ["15.01 GB", "8.59 GB", "9.31 ms", "1719", "1.00×", "memory-bound", "about 115,000 tokens",
    "16.06 GB of weights + 8.59 GB of cache = 24.65 GB of 80 GB: fits"]) assert.ok(text.includes(figure), figure);
  assert.deepEqual(await page.locator(".pair-time").allInnerTexts(), ["9.3 ms", "7.7 ms", "6.5 ms", "4.9 ms", "5.1 ms", "3.5 ms"]);
  await page.getByRole("spinbutton", { name: "Batch" }).fill("1");
  await page.getByRole("spinbutton", { name: "Context per sequence" }).fill("2048");
  await page.keyboard.press("Enter");
  await page.getByText("6.20 ms").first().waitFor();
  await page.getByRole("button", { name: /Weights int8, KV bf16/ }).click();
  await page.getByText("3.40 ms").first().waitFor();
  assert.match(page.url(), /weights=int8/); // an address that can be sent to somebody
  await page.reload();
  await page.getByText("3.40 ms").first().waitFor();
  assert.deepEqual(wrong, []);
  await close();
});

test("Quality shows cards, and how to get one", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  const models = [["fast", 90, 0.02], ["near", 60, 0.005], ["beaten", 50, 0.03]].map(([name, speed, kld]) => ({
    name, path: name, architecture: "llama", parameters: 1e8, file_bytes: 1e8, weight_bytes: 1e8, bits_per_weight: 8,
    card: { source: { name: "f16" }, recipe: { to: name, method: "rtn", parameters: "" },
      quality: { text: "t", tokens: 1000, ppl: 20, ppl_se: 1, ppl_source: 19, kld, kld_se: kld / 10, top1: 0.9, top1_se: 0.01, verdict: "close" },
      speed: { prefill_tok_s: 500, decode_tok_s: speed } } }));
  await page.goto(`${server.url}/#/quality`);
  await page.locator(".model-card", { hasText: "shakespeare" }).waitFor();
  assert.match(await page.locator(".empty .command").last().innerText(), /^nibble quantize /);
  await page.route("**/cards", (route) => route.fulfill({ json: { folder: "f", models } }));
  await page.reload();
  await page.locator("svg.scatter").waitFor();
  assert.deepEqual(await page.locator("circle.best title").allTextContents(), ["fast", "near"]); // the Pareto front
  assert.deepEqual(wrong, []);
  await close();
});

test("Learn steps through real numbers", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  await page.goto(`${server.url}/#/learn`);
  const weights = page.locator("section", { hasText: "Weights snapping" });
  const row = await (await fetch(`${server.url}/learn/weights`)).json();
  await weights.locator("circle.weight").first().waitFor();
  assert.equal(await weights.locator("circle.weight").count(), row.values.length);
  const story = () => weights.locator(".story").innerText();
  const before = Number(/([\d.]+)%/.exec(await story())[1]);
  await weights.getByLabel("Outlier, times its own size").fill("4");
  const after = Number(/([\d.]+)%/.exec(await story())[1]);
  assert.ok(after > before, `${before}% to ${after}%`);
  const attention = page.locator("section", { hasText: "a tile at a time" });
  await attention.locator("rect.score").first().waitFor();
  const steps = await attention.getByLabel("Step of the tiles").getAttribute("max");
  for (let i = 0; i < Number(steps); ++i) await attention.getByRole("button", { name: "Step on in the tiles" }).click();
  const [ours, engine] = (await attention.locator(".story b").allInnerTexts()).map(Number);
  assert.ok(Math.abs(ours / engine - 1) < 1e-3, `${ours} and ${engine}`);
  assert.deepEqual(wrong, []);
  await close();
});

test("Live and Learn show the engine's steps", async () => {
  const { page, wrong, close } = await openPage(browser, server.url);
  await page.goto(`${server.url}/`);
  await ask(page, "Speak");
  await page.goto(`${server.url}/#/live`);
  await page.locator(".strip i.answer").first().waitFor();
  // The engine's last step may end a moment behind the answer, and the page looks twice a second.
  await page.waitForFunction(async () => {
    const { steps } = await (await fetch("/status")).json();
    const last = steps[steps.length - 1];
    const label = document.querySelector(".strip").getAttribute("aria-label");
    return label.includes(`Step ${last.step}: request ${last.spans[0].request}`);
  });
  assert.match(await page.locator(".batch .hint").innerText(), /of weights and .* of KV read/);
  await page.goto(`${server.url}/#/learn`);
  const bus = page.locator("section", { hasText: "A bus filling" });
  await bus.locator(".seat.taken").first().waitFor();
  assert.match(await bus.locator(".story").innerText(), /of weights, for one rider/);
  assert.deepEqual(wrong, []);
  await close();
});
