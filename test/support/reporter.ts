/**
 * The closing lines of a test run: which databases and programs it really ran on, and the totals as the very last
 * line, in a form that neither colours nor layout change: `N passed, N failed`.
 */
import { rmSync } from "node:fs";
import type { Reporter, SerializedError, TestModule } from "vitest/node";
import { BACKENDS_FILE, exercisedBackends } from "./backends.ts";
import { findHaproxy } from "./haproxy.ts";
import { findGo, findNghttpd } from "./http2-programs.ts";
import { findNats } from "./nats.ts";
import { findPgbouncer } from "./pgbouncer.ts";
import { findPostgresql, installPostgresql } from "./postgresql/binaries.ts";
import { findPromtool } from "./promtool.ts";
import { findRedis } from "./redis.ts";
import { findSystemdAnalyze } from "./systemd.ts";
import { findFaketime } from "./wrong-clock.ts";

/** What is counted: tests, and as failed also whatever failed outside of a test. */
interface Totals {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
}

/** The programs that tests need besides PostgreSQL, and what is missing without them. */
const programs = [
  {
    find: findPgbouncer,
    without: "PgBouncer was not found on this machine, and is not tested (apt-get install pgbouncer).",
  },
  {
    find: findNats,
    without: "NATS was not found on this machine, and is not tested (apt-get install nats-server).",
  },
  {
    find: findRedis,
    without: "Redis was not found on this machine, and is not tested (apt-get install redis-server).",
  },
  {
    find: findHaproxy,
    without: "HAProxy was not found on this machine, and is not tested (apt-get install haproxy).",
  },
  {
    find: findPromtool,
    without:
      "promtool was not found on this machine, so the alert rules are not tested (apt-get install prometheus).",
  },
  {
    find: findNghttpd,
    without:
      "nghttpd was not found on this machine, so HTTP/2 is not tested with it (apt-get install nghttp2-server).",
  },
  {
    find: findFaketime,
    without:
      "libfaketime was not found on this machine, so standbys with wrong clocks are not tested (apt-get install faketime).",
  },
  {
    find: findSystemdAnalyze,
    without:
      "systemd-analyze was not found on this machine, so the unit of systemd is not checked (apt-get install systemd).",
  },
  {
    find: findGo,
    without:
      "Go was not found on this machine, so HTTP/2 is not tested with it (https://go.dev/doc/install).",
  },
];

/** Runs after vitest's own reporter, and makes a machine that lacks a program a failure where `CI` is set. */
export default class ClosingLines implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly SerializedError[]): void {
    const say = (line: string): boolean => process.stdout.write(`${line}\n`);
    const backends = exercisedBackends();
    say(`Databases exercised: ${backends.length === 0 ? "none" : backends.join(", ")}`);
    const isMissing = postgresIsMissing();
    const missing = programs.filter(({ find }) => find() === undefined);
    const isFailure = (isMissing || missing.length > 0) && isContinuousIntegration();
    if (isMissing) {
      say(`PostgreSQL was not found on this machine, so only the embedded database was tested.`);
      say(installPostgresql);
    }
    for (const { without } of missing) say(without);
    if (isFailure) {
      say("CI is set: this counts as a failure.");
      process.exitCode = 1;
    }
    const { passed, failed, skipped } = count(modules, unhandled.length + (isFailure ? 1 : 0));
    say(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ""}`);
    const file = process.env[BACKENDS_FILE];
    if (file !== undefined) rmSync(file, { force: true });
  }
}

/** Asked when the server of the run may be gone already. */
function postgresIsMissing(): boolean {
  return (process.env["TEST_POSTGRES_URL"] ?? "") === "" && findPostgresql() === undefined;
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
