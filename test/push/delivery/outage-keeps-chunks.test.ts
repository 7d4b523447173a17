/** Two processes live through an outage of their database: afterwards each goes on with what it held. */
import { setTimeout as pause } from "node:timers/promises";
import { expect, test } from "vitest";
import { type DatabaseWire, openDatabaseWire } from "../../support/database-wire.ts";
import type { PushProcess } from "../../support/push-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import {
  deploy,
  deviceNames,
  messagesOf,
  missed,
  repeated,
  sendBy,
  startIssuer,
} from "./processes-fixture.ts";

const zones = [0, 60];
const inZone = 300;
const devices = zones.length * inZone;
const audience = { devices, users: devices, offsets: zones };
/** Milliseconds of the outage, and of what one process sees of it longer than the other. */
const outageMs = 10_000;
const longerMs = 6_000;

const cleanup = suiteCleanup();

test.runIf(backends.includes("PostgreSQL"))(
  "what a process held before an outage of the database is taken by no other one that sees its end sooner",
  async () => {
    const issuer = await startIssuer();
    cleanup.defer(() => issuer.stop());
    const deployment = await deploy(issuer, { audience });
    cleanup.defer(() => deployment.end());
    const { ledger } = deployment.fcm;
    const { host, port } = deployment.database();

    async function start(): Promise<{ process: PushProcess; wire: DatabaseWire }> {
      const wire = await openDatabaseWire(host, port);
      cleanup.defer(() => wire.close());
      const process = await deployment.start({ DB_HOST: "127.0.0.1", DB_PORT: String(wire.port) });
      return { process, wire };
    }
    const [early, late] = await Promise.all([start(), start()]);
    // The responses come while the database is away: they can be stored only afterwards, by who has them.
    deployment.fcm.play({ delayMs: 5_000 });
    const [first = 0, second = 0] = zones;
    const ids = [
      await sendBy(deployment, late.process, early.process, { zone: first, messages: inZone }),
      await sendBy(deployment, early.process, late.process, { zone: second, messages: inZone }),
    ];
    const [restoreEarly, restoreLate] = await Promise.all([early.wire.cut(), late.wire.cut()]);
    await pause(outageMs);
    await restoreEarly();
    await pause(longerMs);
    await restoreLate();

    for (const { process } of [early, late]) {
      const operator = await deployment.at(process);
      for (const id of ids)
        expect(await operator.ended(id)).toMatchObject({ state: "COMPLETED", planned: inZone, sent: inZone });
    }
    expect(missed(ledger, deviceNames(1, devices))).toEqual([]);
    expect(repeated(ledger)).toEqual([]);
    // Each has stored what it had sent.
    expect(await Promise.all([early, late].map(({ process }) => messagesOf(process)))).toEqual([
      inZone,
      inZone,
    ]);
  },
);
