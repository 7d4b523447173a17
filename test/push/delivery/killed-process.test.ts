/**
 * A process is killed in each state that its work can be in. Another one, which starts afterwards, finishes it: every
 * device gets its message, and those whose outcome was stored get it only once.
 */
import postgres from "postgres";
import { beforeAll, describe, type ExpectStatic, expect, test } from "vitest";
import { type DatabaseWire, openDatabaseWire } from "../../support/database-wire.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import type { PushProcess } from "../../support/push-server.ts";
import { historyOf } from "../../support/send-audience.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { atRest } from "../../support/wait-for.ts";
import { type Operator, until } from "../end-to-end/operator.ts";
import {
  type Deployment,
  deploy,
  deviceNames,
  type Issuer,
  missed,
  repeated,
  repeatedSince,
  startIssuer,
} from "./processes-fixture.ts";

const devices = 300;
const audience = { devices, users: devices, offsets: [0, 60, 120] };
const everyDevice = deviceNames(1, devices);
/** A third of the devices, which the provider treats in another way than the others. */
const others = { tokenPattern: "^device-1..$", names: deviceNames(100, 199) };
/** Seconds until all that a dead process had is done by another. */
const patience = 150;

/**
 * Keeps anybody from writing entries of the history, which planning does. Not by a connection of the service, which
 * ends transactions that take long.
 */
async function holdPlanning({ env }: PushProcess) {
  const url = requiredPostgresUrl();
  url.pathname = `/${env["DB_NAME"]}`;
  const admin = postgres(url.href, { max: 1, onnotice: () => undefined });
  await admin.unsafe("begin; lock table push.history_blocks in share mode");
  return {
    isAwaited: async () =>
      (
        await admin`
        select from pg_locks where relation = 'push.history_blocks'::regclass and not granted`
      ).length > 0,
    [Symbol.asyncDispose]: () => admin.end({ timeout: 1 }),
  };
}

describe.runIf(backends.includes("PostgreSQL"))("after kill -9", { timeout: 200_000 }, () => {
  let issuer: Issuer;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    issuer = await startIssuer();
    cleanup.defer(() => issuer.stop());
  });

  interface Doomed {
    readonly deployment: Deployment;
    readonly process: PushProcess;
    readonly operator: Operator;
    readonly wire: DatabaseWire;
  }

  /** A process that is going to be killed, on a database of its own. @param env of this and of the next process */
  async function start(owned: AsyncDisposableStack, env = {}): Promise<Doomed> {
    const deployment = await deploy(issuer, { env, audience });
    owned.defer(() => deployment.end());
    const { host, port } = deployment.database();
    const wire = await openDatabaseWire(host, port);
    owned.defer(() => wire.close());
    const process = await deployment.start({ DB_HOST: "127.0.0.1", DB_PORT: String(wire.port) });
    return { deployment, process, operator: await deployment.at(process), wire };
  }

  /** Kills the process and starts another. @returns an operator who asks that, and the moment of the kill */
  async function replace({ process, deployment }: Doomed) {
    await process.kill();
    const killedAt = Date.now();
    deployment.fcm.stopPlaying();
    return { killedAt, operator: await deployment.at(await deployment.start()) };
  }

  /** Waits for the end: no device was missed, and none was sent to again after the kill by who did the rest. */
  async function expectAllSent(
    expect: ExpectStatic,
    { read, fcm: { ledger } }: Deployment,
    { id, operator, killedAt }: { id: string; operator: Operator; killedAt: number },
  ): Promise<void> {
    expect(await operator.ended(id, patience)).toMatchObject({
      ...{ state: "COMPLETED", recipients: devices, planned: devices, sent: devices },
      ...{ failed: 0, dropped: 0, deadLettered: 0, remaining: 0 },
    });
    expect(missed(ledger, everyDevice)).toEqual([]);
    expect(repeatedSince(ledger, killedAt)).toEqual([]);
    expect(ledger.summary().tokensNotifiedTwice).toBe(0);
    expect(await read((db) => historyOf(db, id))).toEqual({ rows: devices, users: devices });
  }

  test.concurrent("while it plans, each device gets one message", async ({ expect }) => {
    await using owned = new AsyncDisposableStack();
    const doomed = await start(owned);
    const { deployment } = doomed;
    const held = owned.use(await holdPlanning(doomed.process));
    const id = await doomed.operator.send();
    await until("it plans", held.isAwaited);
    await doomed.process.kill();
    await held[Symbol.asyncDispose]();
    await expectAllSent(expect, deployment, { id, ...(await replace(doomed)) });
    expect(repeated(deployment.fcm.ledger)).toEqual([]);
  });

  test.concurrent("before the first message of what is planned, each device gets one", async ({ expect }) => {
    await using owned = new AsyncDisposableStack();
    const doomed = await start(owned);
    const { deployment, operator } = doomed;
    // Google gives no access token, and without it nothing can be sent.
    const waiting = deployment.fcm.play({ on: "token", delayMs: 600_000 });
    const id = await operator.send();
    await until("it is planned", async () => (await operator.progress(id)).planned === devices);
    await until("it wants to send", () => waiting.played > 0);
    await expectAllSent(expect, deployment, { id, ...(await replace(doomed)) });
    expect(repeated(deployment.fcm.ledger)).toEqual([]);
  });

  test.concurrent("while messages are in flight, these are repeated and no others", async ({ expect }) => {
    await using owned = new AsyncDisposableStack();
    const doomed = await start(owned);
    const { deployment, operator } = doomed;
    const { ledger } = deployment.fcm;
    // FCM takes these at once, and does not say so for a long time.
    deployment.fcm.play({ tokenPattern: others.tokenPattern, delayMs: 600_000 });
    const id = await operator.send();
    const quick = devices - others.names.length;
    await until("all is out", () => ledger.summary().tokens === devices);
    // Sooner than the messages in flight are given up, which ends their wait as well.
    await until("the others are stored", async () => (await operator.progress(id)).sent === quick, 9);
    await expectAllSent(expect, deployment, { id, ...(await replace(doomed)) });
    expect(repeated(ledger)).toEqual(others.names);
  });

  test.concurrent("after responses that were not stored, these messages alone are repeated", async ({
    expect,
  }) => {
    await using owned = new AsyncDisposableStack();
    const doomed = await start(owned, { PUSH_MAX_PER_SECOND: "50" });
    const { deployment, operator, wire } = doomed;
    const { ledger } = deployment.fcm;
    const id = await operator.send();
    await until("some are stored", async () => (await operator.progress(id)).sent > 0);
    const { sent: stored } = await operator.progress(id);
    wire.hang();
    // What is begun goes out and gets its response, and nothing else begins.
    const accepted = await atRest(() => ledger.summary().messages);
    expect(accepted).toBeLessThan(devices);
    const { killedAt, operator: next } = await replace(doomed);
    const inDatabase = (await next.progress(id)).sent;
    await expectAllSent(expect, deployment, { id, killedAt, operator: next });
    const unstored = repeated(ledger);
    expect(unstored.length).toBeGreaterThan(0);
    expect(unstored.length).toBeLessThanOrEqual(accepted - stored);
    expect(inDatabase).toBeGreaterThanOrEqual(stored);
    for (const { before } of ledger.repeats()) expect(before.answeredAt).toBeLessThan(killedAt);
  });

  test.concurrent("while retries wait, they come, and nothing else", async ({ expect }) => {
    await using owned = new AsyncDisposableStack();
    const doomed = await start(owned);
    const { deployment, operator } = doomed;
    const { ledger } = deployment.fcm;
    const failing = deployment.fcm.play({ tokenPattern: "^device-10.$", answer: "INTERNAL" });
    const id = await operator.send();
    await until("the others are stored", async () => (await operator.progress(id)).sent === devices - 10);
    expect(failing.played).toBe(10);
    await expectAllSent(expect, deployment, { id, ...(await replace(doomed)) });
    expect(repeated(ledger)).toEqual([]);
  });

  test.concurrent("while the notification is paused, resuming it sends the rest", async ({ expect }) => {
    await using owned = new AsyncDisposableStack();
    const doomed = await start(owned, { PUSH_MAX_PER_SECOND: "100" });
    const { deployment, operator } = doomed;
    const { ledger } = deployment.fcm;
    const id = await operator.send();
    await until("it sends", () => ledger.summary().messages > 50);
    await operator.pause(id);
    const { sent: stored } = await operator.progress(id);
    const { killedAt, operator: next } = await replace(doomed);
    const accepted = ledger.summary().messages;
    expect(accepted).toBeLessThan(devices);
    await next.resume(id);
    await expectAllSent(expect, deployment, { id, killedAt, operator: next });
    expect(repeated(ledger).length).toBeLessThanOrEqual(accepted - stored);
  });
});

// The only process of an embedded database is followed by the next one.
test("after kill -9 on PGlite, what was in flight is repeated and nothing else", async () => {
  await using owned = new AsyncDisposableStack();
  const issuer = await startIssuer();
  owned.defer(() => issuer.stop());
  const deployment = await deploy(issuer, { audience }, "PGlite");
  owned.defer(() => deployment.end());
  const killed = await deployment.start();
  const { fcm } = deployment;
  fcm.play({ tokenPattern: others.tokenPattern, delayMs: 600_000 });
  const operator = await deployment.at(killed);
  const id = await operator.send();
  const quick = devices - others.names.length;
  await until("all is out", () => fcm.ledger.summary().tokens === devices);
  await until("the others are stored", async () => (await operator.progress(id)).sent === quick, 9);
  await killed.kill();
  fcm.stopPlaying();
  const next = await deployment.at(await deployment.start());
  expect(await next.ended(id, patience)).toMatchObject({ state: "COMPLETED", sent: devices, failed: 0 });
  expect(missed(fcm.ledger, everyDevice)).toEqual([]);
  expect(repeated(fcm.ledger)).toEqual(others.names);
}, 200_000);
