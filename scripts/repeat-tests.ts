/**
 * `npm run test:repeat`: runs all tests many times, the second half while a program keeps every core busy, and
 * appends a line for each run to a table. The table belongs to what is committed, that page aside: a second start
 * continues it, also in another clone if the page was committed, and begins it anew when anything else has changed.
 *
 *   npm run test:repeat -- [TIMES]     20 unless given
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { outputOf, ROOT, run, say } from "./command.ts";

const page = "docs/contributing/test-runs.md";

const times = Number(process.argv[2] ?? 20);
if (!Number.isInteger(times) || times < 1)
  throw new Error("TIMES is how many runs there are to be, such as 20.");

const others = ["--", ".", `:!${page}`];
if ((await outputOf("git", "status", "--porcelain", ...others)) !== "")
  throw new Error("A table belongs to what is committed: commit what is changed first.");
const tree = await outputOf("git", "ls-tree", "-r", "HEAD");
const content = tree.split("\n").filter((line) => !line.endsWith(`\t${page}`));
const state = createHash("sha256").update(content.join("\n")).digest("hex").slice(0, 12);
const table = join(ROOT, page);
if (!existsSync(table) || !readFileSync(table, "utf8").includes(`\`${state}\``))
  writeFileSync(table, headOf(state));
const logs = join(ROOT, ".data", "test-runs");

for (let done = rows().length; done < times; done += 1) {
  const isBusy = done >= Math.ceil(times / 2);
  const started = new Date();
  const load = isBusy ? keepCoresBusy() : [];
  const { ok, stdout, output } = await run("npm", ["test", "--silent"]);
  for (const child of load) child.kill("SIGKILL");
  const minutes = ((Date.now() - started.getTime()) / 60_000).toFixed(1);
  const [, passed = "0", failed = "1"] = [...stdout.matchAll(/^(\d+) passed, (\d+) failed\b/gm)].at(-1) ?? [];
  const failures = ok ? failed : String(Math.max(1, Number(failed)));
  const cells = [done + 1, isBusy ? "busy" : "idle", started.toISOString(), minutes, passed, failures];
  const line = `| ${cells.join(" | ")} |`;
  appendFileSync(table, `${line}\n`);
  say(line);
  if (failures === "0") continue;
  mkdirSync(logs, { recursive: true });
  writeFileSync(join(logs, `${state}-run-${done + 1}.log`), output);
}

const red = rows().filter((row) => !row.trimEnd().endsWith("| 0 |"));
say(`${rows().length} runs, ${red.length} of them red. The table is ${page}.`);
if (red.length > 0) {
  say(`What a red run of today printed is in ${logs}.`);
  process.exitCode = 1;
}

function headOf(ofState: string): string {
  return `# Runs of all tests

\`npm run test:repeat\` writes this page. It runs all tests twenty times, ten of them while a program keeps every core busy, and continues the table when it is started again. These runs are of the state \`${ofState}\`, which is a hash of all files but this one.

| Run | Cores | Started | Minutes | Passed | Failed |
|---|---|---|---|---|---|
`;
}

function rows(): readonly string[] {
  return readFileSync(table, "utf8")
    .split("\n")
    .filter((line) => /^\| \d+ \|/.test(line));
}

/** Starts a busy loop for each core, which runs until it is killed or this program has ended. */
function keepCoresBusy(): readonly ChildProcess[] {
  return Array.from({ length: availableParallelism() }, () =>
    spawn(process.execPath, ["-e", "const parent = process.ppid; while (process.ppid === parent);"], {
      stdio: "ignore",
    }),
  );
}
