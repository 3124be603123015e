// A server with the demonstration model, and a browser.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { chromium } from "playwright-core";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
export const patience = 120_000; // milliseconds after which something hangs; nothing needs so long

export async function startServer(...flags) {
  const folder = mkdtempSync(join(tmpdir(), "nibble-page-"));
  const template = join(folder, "t.jinja");
  writeFileSync(template, "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}");
  const child = spawn(process.env.NIBBLE_BIN ?? join(root, "build/release/bin/nibble"),
    ["serve", join(root, "models/shakespeare"), "--port", "0", "-t", "2", "--chat-template", template,
      "--model-dir", join(root, "models"), ...flags],
    { stdio: ["ignore", "ignore", "pipe"] });
  let log = "";
  const port = await new Promise((resolve, reject) => {
    child.on("exit", () => reject(new Error(`no server:\n${log}`)));
    child.stderr.on("data", (data) => {
      log += data;
      const found = /listening on http:\/\/\S+:(\d+)/.exec(log);
      if (found && log.includes("ready after")) resolve(Number(found[1]));
    });
  });
  const stop = async () => {
    child.removeAllListeners("exit");
    const ended = new Promise((resolve) => child.on("exit", resolve));
    child.kill("SIGTERM");
    await ended;
    rmSync(folder, { recursive: true });
  };
  return { url: `http://127.0.0.1:${port}`, stop };
}

// Chromium's sandbox wants another user than root.
export const startBrowser = () => chromium.launch({
  executablePath: process.env.NIBBLE_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"] });

// A page that notes what must not happen: errors, and requests of other servers.
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  await context.addInitScript(() => {
    if (!localStorage.getItem("nibble.sampling"))
      localStorage.setItem("nibble.sampling", JSON.stringify({ numbers: {}, system: "", max_tokens: 40, seed: 1 }));
  });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  const wrong = [];
  page.on("pageerror", (error) => wrong.push(`script: ${error.message}`));
  page.on("console", (message) => {
    if (message.type() === "error") wrong.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(url)) wrong.push(`asked elsewhere: ${request.url()}`);
  });
  return { page, wrong, close: () => context.close() };
}
