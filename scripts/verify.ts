/**
 * `npm run verify`: all checks that a change must pass before it is merged, in one command; continuous integration runs the same.
 * It continues after a failure, so that one run shows every failure. Steps that measure no time run side by side, and
 * are told of as they end; the tests come last. The last line is `N passed, N failed`: it counts the tests, and every
 * other step that failed.
 */
import { availableParallelism } from "node:os";
import { performance } from "node:perf_hooks";
import { inspect } from "node:util";
import { readArguments } from "../src/command.ts";
import { type Outcome, run, say, usageIn } from "./command.ts";
import { checkMigrations } from "./migrations-check.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

interface Step {
  readonly name: string;
  run(): Promise<Outcome>;
}

interface Totals {
  readonly passed: number;
  readonly failed: number;
}

/** The counts in the last line of the tests. A failed run has at least one failure. */
function totalsOf({ ok, stdout }: Outcome): Totals {
  const [, passed, failed] = [...stdout.matchAll(/^(\d+) passed, (\d+) failed\b/gm)].at(-1) ?? [];
  return { passed: Number(passed ?? 0), failed: Math.max(Number(failed ?? 0), ok && passed ? 0 : 1) };
}

/** Runs a step; one that throws has failed. */
async function outcomeOf(step: Step): Promise<Outcome> {
  try {
    return await step.run();
  } catch (error) {
    return { ok: false, stdout: "", output: inspect(error) };
  }
}

const script = (name: string): Step => ({ name, run: () => run("npm", ["run", "--silent", name]) });

const chart: Step = {
  name: "chart -- --check",
  run: () => run("npm", ["run", "--silent", "chart", "--", "--check"]),
};

/** The short form of a suite. */
const short = (name: string): Step => ({
  name: `${name} -- --short`,
  run: () => run("npm", ["run", "--silent", name, "--", "--short"]),
});

// They take minutes and need programs that continuous integration has: PostgreSQL, other languages' toolchains.
const isComplete = Boolean(process.env["CI"]);
const [clients, faults] = [short("test:clients"), short("test:faults")];

/** The longest come first. */
const sideBySide: readonly Step[] = [
  ...(isComplete ? [clients] : []),
  script("typecheck"),
  { name: "migrations", run: checkMigrations },
  ...(isComplete ? [chart] : []),
  script("lint"),
  script("gen:check"),
  script("breaking"),
];

/** They hold servers to seconds, which neighbours would take from them. */
const alone: readonly Step[] = isComplete ? [faults] : [];

const failed: string[] = [];

async function runSteps(steps: Iterable<Step>): Promise<void> {
  for (const step of steps) {
    const start = performance.now();
    const { ok, output } = await outcomeOf(step);
    const seconds = ((performance.now() - start) / 1000).toFixed(1);
    say(`${ok ? "ok    " : "FAILED"} ${step.name} (${seconds} s)`);
    if (ok) continue;
    failed.push(step.name);
    say(`${output}\n`);
  }
}

if (!isComplete)
  for (const { name } of [chart, clients, faults]) say(`left out ${name}: it runs where CI is set`);
// All take from the same steps.
const steps = sideBySide.values();
await Promise.all(Array.from({ length: availableParallelism() }, () => runSteps(steps)));
await runSteps(alone);
const tests = totalsOf(await run("npm", ["run", "--silent", "test"], true));
const failures = tests.failed + failed.length;
if (failed.length > 0) say(`Failed beside the tests: ${failed.join(", ")}.`);
say(`${tests.passed} passed, ${failures} failed`);
if (failures > 0) process.exitCode = 1;
