/**
 * Everything that must hold before a change is merged, in one command; continuous integration runs the
 * same. It goes on after a failure, so that one run shows all there is to repair. The tests come last,
 * and their totals are the last line.
 */
import { performance } from "node:perf_hooks";
import { type Outcome, run, say } from "./command.ts";
import { checkMigrations } from "./migrations-check.ts";

interface Step {
  readonly name: string;
  run(): Promise<Outcome>;
}

const script = (name: string): Step => ({ name, run: () => run("npm", ["run", "--silent", name]) });

const STEPS: readonly Step[] = [
  script("gen:check"),
  script("lint"),
  script("typecheck"),
  script("breaking"),
  { name: "migrations", run: checkMigrations },
];

const failed: string[] = [];
for (const step of STEPS) {
  const start = performance.now();
  const { ok, output } = await step.run();
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  say(`${ok ? "ok    " : "FAILED"} ${step.name} (${seconds} s)`);
  if (ok) continue;
  failed.push(step.name);
  say(`${output}\n`);
}
if (failed.length > 0) say(`Failed before the tests: ${failed.join(", ")}.`);

const tests = await run("npm", ["run", "--silent", "test"], true);
if (failed.length > 0 || !tests.ok) process.exitCode = 1;
