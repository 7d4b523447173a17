/** The leases of a relay when the database was away: its failures hold up no events once it is back. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createIdentities } from "../../../src/auth/identities/identities.ts";
import { outbox, relayLeases } from "../../../src/auth/schema.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database, OpenDatabase } from "../../../src/platform/database/database.ts";
import { relayOnce } from "../../../src/platform/messaging/relay.ts";
import { startRelay } from "../../../src/platform/messaging/relay-loop.ts";
import { newPhone } from "../../support/auth-api.ts";
import { captureLog } from "../../support/captured-log.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A release, or a commit, whose outcome nobody learns of. */
interface Losses {
  readonly release?: () => boolean;
  readonly commit?: () => boolean;
}

describe.each(backends)("the leases of a relay on %s", (backend) => {
  const { logger } = captureLog();
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });
  beforeEach(async () => {
    await database.db.execute(sql`delete from auth.outbox`);
    await database.db.execute(sql`delete from auth.relay_leases`);
  });

  /** Writes the event of a new identity. @returns its subject */
  async function write(): Promise<string> {
    const id = randomUUID();
    await createIdentities(database.db, { now: Date.now }).create(id, { phone: newPhone() });
    return id;
  }

  async function waiting(): Promise<number> {
    const [found] = await rows<{ n: number }>(database.db, sql`select count(*)::int as n from auth.outbox`);
    return Number(found?.n);
  }

  function lost(): Promise<never> {
    const error = Object.assign(new Error("the connection was lost"), { code: "CONNECTION_CLOSED" });
    return Promise.reject(error);
  }

  function losing({ release, commit }: Losses): Database {
    const { db } = database;
    return Object.create(db, {
      update: {
        value: (table: typeof relayLeases) =>
          release?.() ? { set: () => ({ where: lost }) } : db.update(table),
      },
      transaction: {
        async value(work: Parameters<typeof db.transaction>[0]) {
          const result = await db.transaction(work);
          return commit?.() ? lost() : result;
        },
      },
    });
  }

  function relaying(db: Database) {
    const subjects: string[] = [];
    const deliver = ({ subject }: { readonly subject: string }) => void subjects.push(subject);
    const common = { db, outbox, leases: relayLeases, source: "https://id.example.com/api/auth", logger };
    return { subjects, settings: { ...common, subscribers: [{ deliver }] } };
  }

  /** Whether it happens for the first time. */
  function once(): () => boolean {
    let times = 0;
    return () => {
      times += 1;
      return times === 1;
    };
  }

  test.each(["release", "commit"])(
    "one whose %s is not known is taken again at once by the same process, and by no other before it is over",
    async (what) => {
      const isFirst = once();
      const own = relaying(losing({ [what]: isFirst }));
      const other = relaying(database.db);
      const holder = randomUUID();
      const relay = () => relayOnce(own.settings, 0, holder);
      const first = await write();
      await relay().catch(() => undefined);
      const second = await write();
      expect(await relayOnce(other.settings)).toBe(0);
      expect(await relay()).toBeGreaterThan(0);
      expect([own.subjects, other.subjects]).toEqual([[first, second], []]);
      // That one is released.
      const third = await write();
      expect(await relayOnce(other.settings)).toBe(1);
      expect(other.subjects).toEqual([third]);
    },
  );

  test("events are delivered soon after the database is back, however often a lease could not be taken", async () => {
    let failures = 0;
    let since = stopwatch();
    const commit = () => {
      if (failures === 6) return false;
      failures += 1;
      since = stopwatch();
      return true;
    };
    await write();
    const { settings } = relaying(losing({ commit }));
    const relay = startRelay({ ...settings, intervalMs: 100 });
    await waitFor(async () => expect(await waiting()).toBe(0));
    expect(since()).toBeLessThan(2_000);
    await relay.stop();
  });
});
