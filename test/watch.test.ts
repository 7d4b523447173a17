/** `npm run dev` starts anew on what a server is made of, and on nothing that a server writes. */
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { expect, it } from "vitest";
import { killAll, root, startProgram } from "./support/program.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

const directory = mkdtempSync(join(tmpdir(), "gatepost-watch-"));
suiteCleanup().defer(() => {
  killAll();
  rmSync(directory, { recursive: true, force: true });
});

it("restarts on src, gen and openapi, and not on .data", async () => {
  const folders = ["src/auth", "gen/openapi", "openapi", ".data/database"];
  for (const folder of folders) mkdirSync(join(directory, folder), { recursive: true });
  writeFileSync(join(directory, "src/start.js"), "console.log('started'); setInterval(() => {}, 1000);");
  const { scripts } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const [, ...flags] = scripts.dev.split(" ");
  const watcher = startProgram([process.execPath, ...flags], {}, directory);
  const starts = () => watcher.output().match(/^started$/gm)?.length ?? 0;
  /** Puts a new file there, in one step: to write it there would be two changes. */
  function change(file: string): void {
    writeFileSync(join(directory, "new"), String(Math.random()));
    renameSync(join(directory, "new"), join(directory, file));
  }

  await waitFor(() => expect(starts()).toBe(1));
  let expected = 1;
  for (const file of ["src/auth/a.ts", "gen/openapi/auth.json", "openapi/auth.yaml"]) {
    await setTimeout(500);
    change(file);
    expected += 1;
    await waitFor(() => expect(starts(), watcher.output()).toBe(expected));
  }
  change(".data/database/postmaster.pid");
  change(".data/outbox.ndjson");
  await setTimeout(1_500);
  expect(starts()).toBe(expected);
  watcher.child.kill("SIGTERM");
  await watcher.ended();
});
