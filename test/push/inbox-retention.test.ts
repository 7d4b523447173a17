/** The service keeps the id of an event for as long as the stream of auth may deliver it again, whoever set that. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { createBroker } from "../../src/platform/messaging/broker.ts";
import { createMetrics } from "../../src/platform/observability/metrics.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { deletionsConsumer } from "../../src/push/events.ts";
import { createPushService } from "../../src/push/service.ts";
import { readSettings } from "../../src/services.ts";
import { captureLog } from "../support/captured-log.ts";
import { findNats, startNats } from "../support/nats.ts";
import { rows } from "../support/rows.ts";
import { backends } from "../support/servers.ts";
import { createMigratedServiceDatabase } from "../support/service-database.ts";
import { waitFor } from "../support/wait-for.ts";

describe.skipIf(findNats() === undefined).each(backends)("the inbox of the service on %s", (backend) => {
  test.each([
    { ofStream: 30, ofPush: 7, kept: 31 },
    { ofStream: 7, ofPush: 30, kept: 8 },
    { ofStream: 2, ofPush: 2, kept: 3 },
  ])(
    "keeps ids for $kept days, with $ofStream at the broker and $ofPush in its own settings",
    async (days) => {
      await using cleanup = new AsyncDisposableStack();
      const nats = await startNats();
      cleanup.defer(() => nats.stop());
      const { logger } = captureLog();
      // As auth does at its start.
      const ofAuth = createBroker({
        settings: {
          ...{ servers: [nats.url], credentials: undefined, ca: undefined },
          ...{ replicas: 1, retentionDays: days.ofStream },
        },
        name: "auth",
        logger,
      });
      cleanup.defer(() => ofAuth.close());
      await ofAuth.prepareStream(deletionsConsumer.stream);
      const own = await createMigratedServiceDatabase(backend, pushMigrations);
      cleanup.defer(() => own.drop());
      const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
      cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
      const { push } = await readSettings({
        ...{ DATA_DIR: dataDir, SERVICES: "push", JANITOR_INTERVAL_SECONDS: "1" },
        ...{ BROKER_URL: nats.url, BROKER_RETENTION_DAYS: String(days.ofPush) },
      });
      if (!push) throw new Error("push does not run");
      const service = await createPushService({
        settings: { ...push, database: own.settings },
        ...{
          logger,
          eventLog: undefined,
          metrics: createMetrics("gatepost", "0.0.0"),
          validateResponses: true,
        },
      });
      cleanup.defer(() => service.stop(5_000));
      const { db } = service.database;
      const received = (age: number) =>
        db.execute(
          sql`insert into push.inbox values (gen_random_uuid(), now() - ${age}::float8 * interval '1 day')`,
        );
      await received(days.kept + 0.01);
      await received(days.kept - 0.01);
      await service.prepare();
      service.startWorkers();
      const ages = async () => {
        const found = await rows<{ age: number }>(
          db,
          sql`select extract(epoch from now() - received_at)::float8 / 86400 as age from push.inbox`,
        );
        return found.map(({ age }) => Math.round(age * 100) / 100);
      };
      await waitFor(async () => expect(await ages()).toEqual([days.kept - 0.01]));
    },
  );
});
