/** The unit of deploy/systemd: systemd knows all of it, and gives a process time to end. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { serverTable } from "../src/platform/settings/server.ts";
import { root } from "./support/program.ts";
import { findSystemdAnalyze } from "./support/systemd.ts";

const unit = readFileSync(join(root, "deploy/systemd/gatepost.service"), "utf8");
const program = findSystemdAnalyze() ?? "";

/** @returns the complaints, of which there are none if it is right */
function verify(text: string): string {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  try {
    const file = join(directory, "gatepost.service");
    writeFileSync(file, text.replace("/usr/bin/node", process.execPath));
    const { stdout, stderr } = spawnSync(program, ["verify", file], { encoding: "utf8" });
    return stdout + stderr;
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test("a process has longer to stop than its settings take unless they are set", () => {
  const seconds = Number(unit.match(/^TimeoutStopSec=(\d+)$/m)?.[1]);
  const { SHUTDOWN_DELAY_SECONDS: delay, SHUTDOWN_GRACE_SECONDS: grace } = serverTable;
  expect(seconds).toBeGreaterThan(Number(delay.production) + Number(grace.default));
});

describe.skipIf(program === "")("systemd-analyze", () => {
  test("has nothing to say against the unit", () => expect(verify(unit)).toBe(""));

  test("can tell: a misspelt line is one", () =>
    expect(verify(unit.replace("LimitNOFILE=", "LimitNOFILES="))).toContain("LimitNOFILES"));
});
