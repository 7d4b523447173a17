/** The database's clock jumps while processes send: they neither lose work nor take it from each other. */
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { pushMigrations } from "../../../src/push/database.ts";
import { createTestDatabase } from "../../support/backends.ts";
import { migrate } from "../../support/migrated-database.ts";
import { findPostgresql } from "../../support/postgresql/binaries.ts";
import { startCluster } from "../../support/postgresql/cluster.ts";
import type { PushProcess } from "../../support/push-server.ts";
import { backends, databaseEnvironment } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { findFaketime, type MovedClock, movedClock } from "../../support/wrong-clock.ts";
import { until } from "../end-to-end/operator.ts";
import {
  type Deployment,
  deploy,
  deviceNames,
  messagesOf,
  missed,
  repeated,
  sendBy,
  startIssuer,
} from "./processes-fixture.ts";

const programs = findPostgresql(["initdb", "postgres"]);
const [first, second] = [0, 60];
const inZone = 300;
const devices = 2 * inZone;
const audience = { devices, users: devices, offsets: [first, second] };
const hourMs = 3_600_000;
const isPossible = programs !== undefined && findFaketime() !== undefined && backends.includes("PostgreSQL");

describe.runIf(isPossible)("processes whose database has a clock that jumps", () => {
  let clock: MovedClock;
  let admin: postgres.Sql;
  let deployment: Deployment;
  let one: PushProcess;
  let other: PushProcess;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    clock = cleanup.use(movedClock());
    const settings = ["fsync=off", "max_connections=100"];
    const cluster = await startCluster(programs ?? "", settings, "", { env: clock.env });
    cleanup.defer(() => cluster.stop());
    const database = await createTestDatabase({ admin: new URL(cluster.url) });
    await migrate(database, pushMigrations);
    admin = postgres(cluster.url, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end({ timeout: 1 }));
    const issuer = await startIssuer();
    cleanup.defer(() => issuer.stop());
    deployment = await deploy(issuer, { audience, env: databaseEnvironment(database) });
    cleanup.defer(() => deployment.end());
    [one, other] = await Promise.all([deployment.start(), deployment.start()]);
    // The responses come after the jump: what was begun is held all the time.
    deployment.fcm.play({ delayMs: 7_000 });
  });

  async function jump(hours: number): Promise<void> {
    clock.move(`+${hours}h`);
    await until(`the clock is ${hours} hours ahead`, async () => {
      const [read] = await admin<{ now: Date }[]>`select clock_timestamp() as now`;
      return Math.abs(Number(read?.now) - Date.now() - hours * hourMs) < hourMs;
    });
  }

  test("two hours ahead: each process goes on with what it holds", async () => {
    const { ledger } = deployment.fcm;
    const ids = [
      await sendBy(deployment, one, other, { zone: first, messages: inZone }),
      await sendBy(deployment, other, one, { zone: second, messages: inZone }),
    ];
    await jump(2);
    const operator = await deployment.at(one);
    for (const id of ids)
      expect(await operator.ended(id)).toMatchObject({ state: "COMPLETED", planned: inZone, sent: inZone });
    expect(missed(ledger, deviceNames(1, devices))).toEqual([]);
    expect(repeated(ledger)).toEqual([]);
    // Each has stored what it had sent.
    expect(await Promise.all([one, other].map(messagesOf))).toEqual([inZone, inZone]);
  });

  test("two hours back: what a process held that was killed before is done by the other", async () => {
    deployment.fcm.ledger.clear();
    const id = await sendBy(deployment, one, other, { zone: first, messages: inZone / 2 });
    await one.kill();
    await jump(0);
    const ended = await (await deployment.at(other)).ended(id, 60);
    expect(ended).toMatchObject({ state: "COMPLETED", planned: inZone, sent: inZone });
    expect(deployment.fcm.ledger.summary()).toMatchObject({ tokens: inZone, tokensNotifiedTwice: 0 });
  });
});
