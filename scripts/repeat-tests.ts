/**
 * `npm run test:repeat`: runs all tests many times, the second half while a program keeps every core busy, and
 * appends a line for each run to a table. A second start continues the table. A table belongs to one commit.
 *
 *   npm run test:repeat -- [TIMES]     20 unless given; the table is .data/test-runs/<commit>.md
 */
import { type ChildProcess, spawn } from "node:child_process";
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { outputOf, ROOT, run, say } from "./command.ts";

const head = "| run | cores | started | minutes | passed | failed |\n|---|---|---|---|---|---|\n";

const times = Number(process.argv[2] ?? 20);
if (!Number.isInteger(times) || times < 1)
  throw new Error("TIMES is how many runs there are to be, such as 20.");

const commit = (await outputOf("git", "rev-parse", "--short", "HEAD")).trim();
if ((await outputOf("git", "status", "--porcelain")) !== "") {
  throw new Error("A table belongs to one commit: commit what is changed first.");
}
const directory = join(ROOT, ".data", "test-runs");
const table = join(directory, `${commit}.md`);
mkdirSync(directory, { recursive: true });
if (!existsSync(table)) writeFileSync(table, head);

for (let done = runsIn(table); done < times; done += 1) {
  const isBusy = done >= Math.ceil(times / 2);
  const started = new Date();
  const load = isBusy ? keepCoresBusy() : [];
  const { ok, stdout } = await run("npm", ["test", "--silent"]);
  for (const child of load) child.kill("SIGKILL");
  const minutes = ((Date.now() - started.getTime()) / 60_000).toFixed(1);
  const [, passed = "0", failed = "1"] = [...stdout.matchAll(/^(\d+) passed, (\d+) failed\b/gm)].at(-1) ?? [];
  const failures = ok ? failed : String(Math.max(1, Number(failed)));
  const cells = [done + 1, isBusy ? "busy" : "idle", started.toISOString(), minutes, passed, failures];
  const line = `| ${cells.join(" | ")} |`;
  appendFileSync(table, `${line}\n`);
  say(line);
  if (failures !== "0") writeFileSync(join(directory, `${commit}-run-${done + 1}.log`), stdout);
}

const red = rowsOf(table).filter((row) => !row.trimEnd().endsWith("| 0 |"));
say(`${runsIn(table)} runs of ${commit}, ${red.length} of them red. The table is ${table}.`);
if (red.length > 0) process.exitCode = 1;

function rowsOf(file: string): readonly string[] {
  return readFileSync(file, "utf8")
    .split("\n")
    .filter((line) => /^\| \d+ \|/.test(line));
}

function runsIn(file: string): number {
  return rowsOf(file).length;
}

/** Starts a busy loop for each core, which runs until it is killed or this program has ended. */
function keepCoresBusy(): readonly ChildProcess[] {
  return Array.from({ length: availableParallelism() }, () =>
    spawn(process.execPath, ["-e", "const parent = process.ppid; while (process.ppid === parent);"], {
      stdio: "ignore",
    }),
  );
}
