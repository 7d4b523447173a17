/** What is sent while nobody can tell whether the notification was paused or cancelled. */
import { randomUUID } from "node:crypto";
import { setTimeout as elapsed } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { afterEach, beforeAll, describe, expect, it } from "vitest";
import type { Database } from "../../../src/platform/database/database.ts";
import { SendabilityCheck } from "../../../src/push/delivery/sendability-check.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createDeliveryTest, type DeliveryTest, eventually, recordingProvider } from "./delivery-fixture.ts";

const devices = 300;

// The embedded database has one connection, on which the checks cannot be held up alone.
describe.runIf(backends.includes("PostgreSQL"))("while no check is answered", () => {
  let test: DeliveryTest;
  /** With connections of its own: the worker's do one transaction at a time. */
  let other: Database;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    test = await createDeliveryTest("PostgreSQL");
    cleanup.defer(() => test.close());
    other = (await test.database.open()).db;
  });
  afterEach(async () => {
    await test.stopWorkers();
    await test.clearState();
  });

  function withoutChecks<T>(work: () => Promise<T>): Promise<T> {
    return other.transaction(async (tx) => {
      // Every check reads this table, and waits.
      await tx.execute(sql`lock table push.provider_states in access exclusive mode`);
      return work();
    });
  }

  async function startSend() {
    const planned = await test.plan({ devices });
    const provider = recordingProvider(1);
    provider.answer = () => elapsed(10, { kind: "sent" });
    test.startWorker({ providers: [provider], rules: { maxUncheckedMs: 400 } });
    await eventually(() => provider.sent.length > 10);
    /** Waits until none is sent any more. @returns how many were */
    async function standstill(): Promise<number> {
      const lately = () => performance.now() - (provider.sent.at(-1)?.at ?? 0) < 600;
      await eventually(() => provider.sent.length === devices || !lately());
      return provider.sent.length;
    }
    return { planned, provider, standstill };
  }

  it("a notification that is paused meanwhile is sent no further, and nothing is lost", async () => {
    const { planned, provider, standstill } = await startSend();
    const sent = await withoutChecks(async () => {
      await test.pause(planned);
      return standstill();
    });
    expect(sent).toBeLessThan(devices);
    const [chunk] = await test.until(planned, ["PARKED", "DONE"]);
    expect(chunk).toMatchObject({ state: "PARKED", sent, rest: devices - sent, retries: 0 });
    await test.resume(planned);
    expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: devices, failed: 0, rest: 0 }]);
    expect(provider.sent).toHaveLength(devices);
  });

  it("every notification waits, and goes on with the next check in the same try", async () => {
    const { planned, provider, standstill } = await startSend();
    expect(await withoutChecks(standstill)).toBeLessThan(devices);
    expect(await test.until(planned, ["DONE"])).toMatchObject([{ sent: devices, retries: 0 }]);
    expect(provider.sent).toHaveLength(devices);
  });

  it("what became due meanwhile does not go out at once afterwards", async () => {
    await test.plan({ devices: 800 });
    const provider = recordingProvider(800);
    const rules = { checkIntervalMs: 20, maxUncheckedMs: 100, sliceMs: 1_000 };
    test.startWorker({ providers: [provider], settings: { maxPerSecond: 200 }, rules });
    await eventually(() => provider.sent.length > 10);
    // Until all that was reserved before is late by more than a slice.
    await withoutChecks(() => elapsed(2_500));
    const before = provider.sent.length;
    const over = performance.now();
    await eventually(() => provider.sent.length > before);
    await eventually(() => performance.now() - over > 300);
    const atTheirTimes = 0.2 * (performance.now() - over);
    // Up to 190 of the slice's 200 messages would go out together.
    expect(provider.sent.length - before - atTheirTimes).toBeLessThan(100);
  });

  it("a worker that is stopped gives back what it has not begun", async () => {
    const { planned, provider, standstill } = await startSend();
    const { chunks, stopping } = await withoutChecks(async () => {
      await standstill();
      const stopping = test.stopWorkers();
      return { chunks: await test.until(planned, ["READY", "WAITING", "DONE"]), stopping };
    });
    await stopping;
    expect(provider.sent.length).toBeLessThan(devices);
    expect(chunks.reduce((sum, chunk) => sum + chunk.sent, 0)).toBe(provider.sent.length);
    await test.setState(planned, "CANCELLED");
  });

  it("find something as old as the check's beginning, however late the database responds", async () => {
    const { attempt, ...planned } = { attempt: randomUUID(), ...(await test.plan({ devices: 1 })) };
    const [id = 0] = planned.chunkIds;
    await test.db.execute(sql`
      with own as (insert into push.processes (id) values (${attempt}::uuid) returning id)
      update push.delivery_chunks set state = 'TAKEN', attempt = own.id, process_id = own.id from own
      where delivery_chunks.id = ${id}::bigint`);
    const check = new SendabilityCheck(test.db, 10);
    const confirmed = Promise.withResolvers<number>();
    const { promise: stopped, reject: stop } = Promise.withResolvers<never>();
    const { answered, end } = await withoutChecks(async () => {
      const end = check.add({
        id,
        attempt,
        confirm: confirmed.resolve,
        stop: (reason) => stop(new Error(reason)),
      });
      await eventually(() => isWaiting(test.db));
      return { answered: performance.now(), end };
    });
    expect(await Promise.race([confirmed.promise, stopped])).toBeLessThan(answered);
    end();
  });
});

/** Whether somebody waits for a lock. */
async function isWaiting(db: Database): Promise<boolean> {
  const waiting = sql`
    select 1 as one from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  return (await rows(db, waiting)).length > 0;
}
