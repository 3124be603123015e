// Bundles the page into dist/. The same sources and lock file give the same bytes.
// usage: node build.mjs [FOLDER]
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "dist");
await mkdir(out, { recursive: true });
const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  charset: "utf8",
  legalComments: "eof",
  target: ["chrome109", "firefox115", "safari16"],
};
await build({ ...common, entryPoints: ["src/main.ts"], outfile: join(out, "app.js"), format: "iife" });
await build({ ...common, entryPoints: ["src/style/app.css"], outfile: join(out, "app.css") });
for (const file of ["index.html", "icon.svg"]) {
  await copyFile(join(here, "src", file), join(out, file));
}
