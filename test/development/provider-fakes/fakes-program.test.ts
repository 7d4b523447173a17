import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as elapsed } from "node:timers/promises";
import { afterEach, beforeEach, expect, it } from "vitest";
import { startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import { type Program, startProgram } from "../../support/program.ts";
import { accessToken } from "./clients.ts";

let data: string;
let running: Program | undefined;

beforeEach(() => {
  data = mkdtempSync(join(tmpdir(), "gatepost-fakes-"));
});
afterEach(async () => {
  running?.child.kill("SIGKILL");
  await running?.ended();
  rmSync(data, { recursive: true });
});

function start(...args: string[]): Program {
  running = startProgram([process.execPath, "src/development/fakes.ts", "--data", data, ...args], {});
  return running;
}

const anyPorts = ["--control-port=0", "--fcm-port=0", "--apns-port=0", "--webpush-port=0"];

/** The variables that the first screen sets. */
async function variables(program: Program): Promise<Record<string, string>> {
  while (!program.output().includes("Ctrl+C")) {
    if (program.child.exitCode !== null) throw new Error(program.output());
    await elapsed(20);
  }
  return Object.fromEntries(
    [...program.stdout().matchAll(/^export (\w+)=(.*)$/gm)].map(([, name, value]) => [name, value]),
  );
}

it("says where the fakes are, gives a sender what it needs, and ends by SIGTERM", async () => {
  const program = start(...anyPorts);
  const settings = await variables(program);
  expect(Object.keys(settings)).toEqual([
    "PUSH_PROVIDERS",
    "FCM_ENDPOINT",
    "FCM_CREDENTIALS_FILE",
    "APNS_ENDPOINT",
    "APNS_KEY_FILE",
    "APNS_KEY_ID",
    "APNS_TEAM_ID",
    "APNS_TOPIC",
    "WEBPUSH_VAPID_PUBLIC_KEY",
    "WEBPUSH_VAPID_PRIVATE_KEY",
    "WEBPUSH_SUBJECT",
    "WEBPUSH_ALLOWED_HOSTS",
  ]);
  expect(program.stdout()).toContain("With NODE_ENV=production: --cert, --key, NODE_EXTRA_CA_CERTS");
  const account = JSON.parse(readFileSync(settings["FCM_CREDENTIALS_FILE"] ?? "", "utf8"));
  expect(await accessToken(account)).toMatch(/^ya29\./);
  expect(readFileSync(settings["APNS_KEY_FILE"] ?? "", "utf8")).toContain("BEGIN PRIVATE KEY");
  const modes = readdirSync(data).map((name) => statSync(join(data, name)).mode & 0o777);
  expect(modes).toEqual([0o600, 0o600, 0o600, 0o600]);

  program.child.kill("SIGTERM");
  expect(await program.ended()).toBe(0);
});

it("keeps keys and subscriptions for the next start", async () => {
  const read = () => readFileSync(join(data, "webpush-subscription.json"), "utf8");
  const first = await variables(start(...anyPorts));
  const { keys } = JSON.parse(read());
  running?.child.kill("SIGINT");
  expect(await running?.ended()).toBe(0);
  const second = await variables(start(...anyPorts));
  expect(second["WEBPUSH_VAPID_PRIVATE_KEY"]).toBe(first["WEBPUSH_VAPID_PRIVATE_KEY"]);
  expect(JSON.parse(read()).keys).toEqual(keys);
});

it("says what is wrong with its options", async () => {
  const program = start("--fcm-port=http");
  expect(await program.ended()).toBe(2);
  expect(program.stderr()).toContain("--fcm-port is a port");
});

it("says which port is taken, and leaves none open", async () => {
  const other = await startFcmFake();
  try {
    const program = start(...anyPorts, `--webpush-port=${new URL(other.origin).port}`);
    expect(await program.ended()).toBe(1);
    expect(program.stderr()).toContain("EADDRINUSE");
  } finally {
    await other.close();
  }
});
