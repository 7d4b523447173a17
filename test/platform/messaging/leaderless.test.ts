/**
 * Servers of NATS that have lost the one that led the stream, and elect another: the connection to those that are left
 * stays, and nothing can be published.
 */
import { randomUUID } from "node:crypto";
import { TimeoutError } from "@nats-io/transport-node";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { AuthEvents } from "../../../src/auth/events.ts";
import { createIdentities } from "../../../src/auth/identities/identities.ts";
import { outbox, relayLeases } from "../../../src/auth/schema.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import type { Broker } from "../../../src/platform/messaging/broker.ts";
import { publishEvents } from "../../../src/platform/messaging/publish-events.ts";
import { startRelay } from "../../../src/platform/messaging/relay-loop.ts";
import { newPhone } from "../../support/auth-api.ts";
import { captureLog } from "../../support/captured-log.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";
import { stream } from "./deletions-stream.ts";

const intervalMs = 100;

describe("the relay, while the stream has no leader", () => {
  let database: OpenDatabase;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase("PGlite", authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
  });
  beforeEach(() => database.db.execute(sql`delete from auth.outbox`));

  /** Writes events of as many subjects. */
  async function write(count: number): Promise<string[]> {
    const identities = createIdentities(database.db, { now: Date.now });
    const ids = Array.from({ length: count }, () => randomUUID());
    for (const id of ids) await identities.create(id, { phone: newPhone() });
    return ids;
  }

  /**
   * Relays to a broker that is connected.
   * @param answer rejects where a request to publish that subject is to fail, or one that asks about the stream
   */
  function relayTo(answer: (subject?: string) => Promise<void>) {
    const published: string[] = [];
    const broker: Broker = {
      prepareStream: () => answer(),
      ensureConsumer: () => answer(),
      connected: async () => undefined,
      close: async () => undefined,
      ensureStream: () => answer(),
      async publish(_stream, _type, _id, { headers }) {
        const subject = String(headers.get("ce-subject"));
        await answer(subject);
        published.push(subject);
      },
      pull: () => Promise.reject(new Error("nobody reads")),
      unread: () => Promise.reject(new Error("nobody reads")),
      retentionDays: () => Promise.reject(new Error("nobody reads")),
    };
    const publisher = publishEvents(broker, stream, Object.values(AuthEvents));
    const relay = startRelay({
      db: database.db,
      outbox,
      leases: relayLeases,
      logger: captureLog().logger,
      source: "https://id.example.com/api/auth",
      subscribers: [publisher],
      inParts: true,
      intervalMs,
    });
    onTestFinished(() => relay.stop());
    return published;
  }

  test("what it could not publish is published soon after there is one", async () => {
    const [subject] = await write(1);
    let requests = 0;
    const last = 6;
    const elected = Promise.withResolvers<() => number>();
    const published = relayTo(async () => {
      requests += 1;
      if (requests > last) return;
      // Nobody answers this one, though there is a leader by then.
      if (requests === last) elected.resolve(stopwatch());
      throw new TimeoutError();
    });
    const since = await elected.promise;
    await waitFor(() => expect(published).toEqual([subject]));
    // A pause that grows with each failure would be at least 32 times the interval by now.
    expect(since()).toBeLessThan(16 * intervalMs);
  });

  test("it is asked for by one look at a time, and not by each part", async () => {
    const subjects = await write(40);
    let isLed = false;
    const asked: (string | undefined)[] = [];
    const published = relayTo(async (subject) => {
      asked.push(subject);
      if (!isLed) throw new TimeoutError();
    });
    await waitFor(() => expect(asked.length).toBeGreaterThan(50));
    // Those of one part.
    const tried = asked.filter((subject) => subject !== undefined).length;
    isLed = true;
    await waitFor(() => expect(published.toSorted()).toEqual(subjects.toSorted()));
    expect(tried).toBeLessThan(40);
  });

  test("an event that fails though there is one is tried after growing pauses, and holds up no other part", async () => {
    const subjects = await write(40);
    const [bad = ""] = subjects;
    const tries: number[] = [];
    const published = relayTo(async (subject) => {
      if (subject !== bad) return;
      tries.push(performance.now());
      throw new Error("message size exceeds maximum allowed");
    });
    await waitFor(() => expect(tries.length).toBeGreaterThan(3));
    const pauses = tries.slice(1).map((at, n) => at - (tries[n] ?? 0));
    for (const [n, pause] of pauses.entries())
      expect(pause).toBeGreaterThanOrEqual(intervalMs * 2 ** (n + 1) - 5);
    expect(new Set(published)).toEqual(new Set(subjects.slice(1)));
  });
});
