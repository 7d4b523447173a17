/**
 * Everything that must hold before a change is merged, in one command; continuous integration runs the
 * same. It goes on after a failure, so that one run shows all there is to repair. The tests come last.
 * The last line is `N passed, N failed`: the tests, and as failed also every other step that failed.
 */
import { performance } from "node:perf_hooks";
import { inspect } from "node:util";
import { type Outcome, run, say } from "./command.ts";
import { checkMigrations } from "./migrations-check.ts";

interface Step {
  readonly name: string;
  run(): Promise<Outcome>;
}

interface Totals {
  readonly passed: number;
  readonly failed: number;
}

/** What the closing line of the tests counts; a run that ended badly has one failure at least. */
function totalsOf({ ok, stdout }: Outcome): Totals {
  const [, passed, failed] = [...stdout.matchAll(/^(\d+) passed, (\d+) failed\b/gm)].at(-1) ?? [];
  return { passed: Number(passed ?? 0), failed: Math.max(Number(failed ?? 0), ok && passed ? 0 : 1) };
}

/** A step that throws has failed like any other. */
async function outcomeOf(step: Step): Promise<Outcome> {
  try {
    return await step.run();
  } catch (error) {
    return { ok: false, stdout: "", output: inspect(error) };
  }
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
  const { ok, output } = await outcomeOf(step);
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  say(`${ok ? "ok    " : "FAILED"} ${step.name} (${seconds} s)`);
  if (ok) continue;
  failed.push(step.name);
  say(`${output}\n`);
}
const tests = totalsOf(await run("npm", ["run", "--silent", "test"], true));
const failures = tests.failed + failed.length;
if (failed.length > 0) say(`Failed beside the tests: ${failed.join(", ")}.`);
say(`${tests.passed} passed, ${failures} failed`);
if (failures > 0) process.exitCode = 1;
