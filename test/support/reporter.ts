/**
 * The closing lines of a test run: which databases it really ran on, and the totals as the very last
 * line, in a form that neither colours nor layout change: `N passed, N failed`.
 */
import { rmSync } from "node:fs";
import type { Reporter, SerializedError, TestModule } from "vitest/node";
import { BACKENDS_FILE, exercisedBackends, postgresReachable, postgresUrl } from "./backends.ts";

/** What is counted: tests, and as failed also whatever failed outside of a test. */
interface Totals {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** Runs after vitest's own reporter, and makes an unreachable PostgreSQL a failure where `CI` is set. */
export default class ClosingLines implements Reporter {
  async onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): Promise<void> {
    const say = (line: string): boolean => process.stdout.write(`${line}\n`);
    const backends = exercisedBackends();
    say(`Databases exercised: ${backends.length === 0 ? "none" : backends.join(", ")}`);
    const missing = await this.#missingPostgres();
    if (missing !== undefined) say(missing);
    const required = missing !== undefined && isContinuousIntegration();
    if (required) process.exitCode = 1;
    const { passed, failed, skipped } = count(modules, unhandled.length + (required ? 1 : 0));
    say(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
    const file = process.env[BACKENDS_FILE];
    if (file !== undefined) rmSync(file, { force: true });
  }

  async #missingPostgres(): Promise<string | undefined> {
    if (await postgresReachable()) return undefined;
    const { hostname, port } = new URL(postgresUrl());
    return [
      `PostgreSQL does not answer at ${hostname}:${port || 5432}, so nothing was tested on it.`,
      "Start one, for example: docker run --rm -p 5432:5432 -e POSTGRES_HOST_AUTH_METHOD=trust postgres:17",
      "or name one in TEST_POSTGRES_URL (a superuser's URL).",
      ...(isContinuousIntegration() ? ["CI is set: this counts as a failure."] : []),
    ].join("\n");
  }
}

function isContinuousIntegration(): boolean {
  return process.env["CI"] !== undefined && process.env["CI"] !== "" && process.env["CI"] !== "false";
}

function count(modules: readonly TestModule[], otherFailures: number): Totals {
  let [passed, failed, skipped] = [0, otherFailures, 0];
  for (const module of modules) {
    passed += [...module.children.allTests("passed")].length;
    failed += [...module.children.allTests("failed")].length;
    skipped += [...module.children.allTests("skipped")].length;
    for (const suite of [module, ...module.children.allSuites()]) failed += suite.errors().length;
  }
  return { passed, failed, skipped };
}
