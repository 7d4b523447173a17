/**
 * Processes that cannot use FCM by a fault of their own, beside one that can: a wrong key, a wrong clock, no route.
 * They leave its messages to the other. Where nobody can, it is the provider that is paused, until one process can.
 */
import { generateKeyPairSync } from "node:crypto";
import { expect, test } from "vitest";
import { openFront } from "../../support/front.ts";
import type { PushProcess } from "../../support/push-server.ts";
import { scrape } from "../../support/scrape.ts";
import { backends, type Environment } from "../../support/servers.ts";
import { sparePort } from "../../support/spare-port.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { findFaketime, movedClock } from "../../support/wrong-clock.ts";
import { until } from "../end-to-end/operator.ts";
import { deploy, messagesOf, startIssuer, terminate } from "./processes-fixture.ts";

const zone = 0;
const perSecond = 200;
/** Sent within six seconds. */
const devices = 1_200;
const cleanup = suiteCleanup();

async function healthOf({ management }: PushProcess) {
  const response = await fetch(`${management}/health/ready`);
  return { status: response.status, body: await response.json() };
}

/** The causes for which a gauge of a process is 1. */
async function causesIn({ management }: PushProcess, gauge: string): Promise<string[]> {
  const families = await scrape(management);
  const samples = families.find(({ name }) => name === gauge)?.samples ?? [];
  return samples.filter(({ value }) => value === 1).map(({ labels }) => labels["cause"] ?? "");
}
const pausedProcess = (process: PushProcess) => causesIn(process, "gatepost_push_process_paused");
const pausedProvider = (process: PushProcess) => causesIn(process, "gatepost_push_provider_paused");

test.runIf(backends.includes("PostgreSQL") && findFaketime())(
  "a process at fault leaves FCM to another, and all of them make it the provider's pause, until one is repaired",
  async () => {
    const issuer = await startIssuer();
    cleanup.defer(() => issuer.stop());
    const env: Environment = { PUSH_MAX_PER_SECOND: String(perSecond), PUSH_RAMP_SECONDS: "0" };
    const deployment = await deploy(issuer, { audience: { devices, users: devices, offsets: [zone] }, env });
    cleanup.defer(() => deployment.end());
    const { fcm } = deployment;
    const clock = cleanup.use(movedClock());
    clock.move("+10m");
    const wrongKey = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
    const wrong = { ...fcm.credentials, private_key: wrongKey.export({ type: "pkcs8", format: "pem" }) };
    const route = sparePort();

    const healthy = await deployment.start();
    const operator = await deployment.at(healthy);
    const first = await operator.send({ utcOffsets: [zone] });
    await until("it sends", () => fcm.ledger.summary().messages > perSecond);
    const [key, late, cut] = await Promise.all([
      deployment.start({ FCM_CREDENTIALS: JSON.stringify(wrong) }),
      deployment.start(clock.env),
      deployment.start({ FCM_ENDPOINT: `http://127.0.0.1:${route}` }),
    ]);
    const faulty = [
      [key, "credentials", "OAuth: 400 invalid_grant"],
      [late, "clock", "OAuth: 400 invalid_grant"],
      [cut, "network", "ECONNREFUSED"],
    ] as const;
    await operator.ended(first);
    const second = await operator.send({ utcOffsets: [zone] });
    for (const [process, cause, reason] of faulty) {
      await until(`${cause} is noticed`, async () => (await pausedProcess(process)).includes(cause));
      expect(await healthOf(process)).toEqual({
        status: 200,
        body: { status: "up", warnings: [{ name: "push fcm", reason: `${cause}: ${reason}` }] },
      });
      const said = "This process alone cannot use the push provider";
      await until("its log says so", () => process.logs().includes(said));
      expect(await pausedProvider(process)).toEqual([]);
    }
    expect(await operator.ended(second)).toMatchObject({ sent: devices, failed: 0, deadLettered: 0 });
    expect(await pausedProcess(healthy)).toEqual([]);
    expect(await messagesOf(healthy)).toBe(2 * devices);
    expect(fcm.ledger.summary().repeats).toBe(0);

    // Those that are left cannot use it, so nobody can.
    await terminate(healthy);
    const left = await deployment.at(late);
    const third = await left.send({ utcOffsets: [zone] });
    for (const [process] of faulty) {
      await until("the provider is paused", async () => (await pausedProvider(process)).length > 0, 90);
      await until("it knows that it is not alone", async () => (await pausedProcess(process)).length === 0);
    }
    expect(await left.progress(third)).toMatchObject({ sent: 0, failed: 0, deadLettered: 0 });

    // One is repaired and ends the pause; the others go on by themselves.
    clock.move("+0");
    await until("it sends", async () => (await left.progress(third)).sent > 0, 90);
    await until("no provider is paused", async () => (await pausedProvider(key)).length === 0);
    const repaired = await openFront(route);
    cleanup.defer(() => repaired.close());
    repaired.leadTo(Number(new URL(fcm.origin).port));
    expect(await left.ended(third, 90)).toMatchObject({ sent: devices, failed: 0, deadLettered: 0 });
    await until("the route is there", async () => (await pausedProcess(cut)).length === 0, 90);
    expect(await pausedProcess(key)).toEqual(["credentials"]);
    expect(await pausedProcess(late)).toEqual([]);
    expect(await healthOf(late)).toEqual({ status: 200, body: { status: "up" } });
    expect(fcm.ledger.summary().tokensNotifiedTwice).toBe(0);
  },
  200_000,
);
