/** The gauges of what waits: each follows its state in the database, at each worker of a real process. */
import { eq, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { openDatabase } from "../../src/platform/database/open.ts";
import { pushMigrations } from "../../src/push/database.ts";
import { deliveryChunks, notifications, providerStates } from "../../src/push/schema.ts";
import { postgresSettings } from "../support/backends.ts";
import { openDatabaseGate } from "../support/database-gate.ts";
import { createMigratedDatabase } from "../support/migrated-database.ts";
import { insertNotification } from "../support/push-rows.ts";
import { scrape, valuesOf } from "../support/scrape.ts";
import { backends, databaseEnvironment, spawnServer } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const names = [
  "removals_held",
  "dead_letters",
  "notifications_unfinished",
  "notifications_held",
  "messages_remaining",
];
const age = "gatepost_push_oldest_unfinished_age_seconds";

describe.runIf(backends.includes("PostgreSQL"))("the gauges of what waits", () => {
  const cleanup = suiteCleanup();

  test("follow their states, at each of two workers, and are absent while the database hangs", async () => {
    const own = await createMigratedDatabase();
    cleanup.defer(() => own.drop());
    const gate = await openDatabaseGate(own.host, own.port);
    cleanup.defer(() => gate.close());
    const port = String(gate.port);
    const env = { ...databaseEnvironment(own), DB_PORT: port, WORKERS: "2", PUSH_PROVIDERS: "outbox" };
    const server = await spawnServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
    const { db, close } = await openDatabase(postgresSettings(own), pushMigrations);
    cleanup.defer(close);

    /** What both workers show, in the order of `names`, and the age. */
    async function shown() {
      const families = await scrape(server.management);
      const [first, second] = ["1", "2"].map((worker) => ({
        gauges: names.map((name) => valuesOf(families, `gatepost_push_${name}`, { worker })),
        age: valuesOf(families, age, { worker }).map((seconds) => Math.round(seconds / 100)),
        files: valuesOf(families, "process_open_fds", { worker }).length,
        mostFiles: valuesOf(families, "process_max_fds", { worker }).length,
      }));
      expect(second).toEqual(first);
      expect(first).toMatchObject({ files: 1, mostFiles: 1 });
      return first;
    }
    const show = (gauges: readonly number[], hundredSeconds: number) =>
      waitFor(async () =>
        expect(await shown()).toMatchObject({
          gauges: gauges.map((value) => [value]),
          age: [hundredSeconds],
        }),
      );

    await show([0, 0, 0, 0, 0], 0);
    const state = { nextAt: new Date(), share: 1, failures: 0, removalsHeldAt: new Date() };
    await db.insert(providerStates).values({ provider: "outbox", ...state });
    await show([1, 0, 0, 0, 0], 0);

    // Nobody takes chunks of a provider that is not in use.
    const acceptedAt = Date.now() - 3_600_000;
    const id = await insertNotification(db, {
      ...{ acceptedAt, state: "SENDING", chunks: ["READY", "READY", "DEAD"] },
    });
    const expiresIn = (ms: number) =>
      db
        .update(notifications)
        .set({ expiresAt: new Date(Date.now() + ms) })
        .where(eq(notifications.id, id));
    await expiresIn(3_600_000);
    await db.update(deliveryChunks).set({ provider: "outbox" }).where(eq(deliveryChunks.state, "DEAD"));
    await show([1, 1, 1, 0, 2], 36);

    const thaw = gate.freeze();
    await waitFor(async () => expect(await shown()).toMatchObject({ gauges: names.map(() => []), age: [] }));
    thaw();
    await show([1, 1, 1, 0, 2], 36);

    await db.update(notifications).set({ state: "PAUSED", heldAt: new Date() });
    await show([1, 1, 0, 1, 2], 0);
    await db.update(notifications).set({ heldAt: null });
    await show([1, 1, 0, 0, 2], 0);
    await db.update(deliveryChunks).set({ state: "PARKED" }).where(eq(deliveryChunks.state, "READY"));
    await db.update(providerStates).set({ removalsHeldAt: null });
    await show([0, 1, 0, 0, 0], 0);
    await expiresIn(-1_000);
    await show([0, 0, 0, 0, 0], 0);

    // More paused ones than are looked at do not hide one that is being sent.
    await db.execute(sql`insert into ${notifications}
      select (jsonb_populate_record(n, jsonb_build_object('id', lpad(i::text, 32, '0')))).*
      from ${notifications} n, generate_series(1, 10000) as i`);
    await db.update(notifications).set({ state: "SENDING" }).where(eq(notifications.id, id));
    // Its chunks may follow it meanwhile.
    await waitFor(async () => expect((await shown())?.gauges[2]).toEqual([1]));
  });
});
