/** Chunks that are taken and not to be sent: set aside with others that would be met next, and only by their holder. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import { setAside } from "../../../src/push/notifications/follow-chunks.ts";
import { Processes } from "../../../src/push/queue/processes.ts";
import { ChunkTaker } from "../../../src/push/queue/take-chunks.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab } from "./notification-lab.ts";

describe.each(backends)("setting chunks aside on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  /** A notification whose first chunk is taken, of a few more than a step writes. */
  async function sending(count = 3) {
    await lab.addDevices([{ userId: "ann" }]);
    const id = await lab.accept();
    await lab.plan();
    await lab.db.execute(sql`
      insert into push.delivery_chunks (notification_id, provider, utc_offset, turn, device_ids, planned)
      select ${id}::uuid, 'outbox', 0, 0, '{1,2}', 2 from generate_series(2, ${count}::int)`);
    const [chunk = ""] = await lab.ready();
    await lab.db.execute(sql`update push.delivery_chunks set retries = 3, first_attempt_at = now()`);
    return { id, chunk: Number(chunk), attempt: await lab.takeChunk(chunk) };
  }
  const states = async (id: string) => {
    const all = (await lab.chunks(id)).map(({ state }) => state);
    return Object.fromEntries([...new Set(all)].map((one) => [one, all.filter((s) => s === one).length]));
  };
  const aside = ({ id, chunk, attempt }: { id: string; chunk: number; attempt: string }) =>
    setAside(lab.db, { id: chunk, attempt, notificationId: id });

  test("those of a paused notification are parked, up to a thousand, and begin anew", async () => {
    const taken = await sending(1_100);
    await lab.notifications.pause(taken.id);
    expect(await states(taken.id), "pausing writes no chunk").toEqual({ TAKEN: 1, READY: 1_099 });
    expect(await aside(taken)).toEqual({ dropped: 0 });
    expect(await states(taken.id)).toEqual({ PARKED: 1_000, READY: 100 });
    const begun = sql`
      select distinct retries, takes, first_attempt_at as first, process_id as holder from push.delivery_chunks
      where state = 'PARKED'`;
    expect(await rows(lab.db, begun)).toEqual([{ retries: 0, takes: 0, first: null, holder: null }]);
    await lab.notifications.resume(taken.id);
    await lab.follow();
    expect(await states(taken.id)).toEqual({ READY: 1_100 });
  });

  test.each(["cancelled", "expired"])("those of one that is %s are dropped", async (how) => {
    const taken = await sending();
    const [, waits] = (await lab.chunks(taken.id)).map((chunk) => chunk.id);
    await lab.db.execute(sql`
      update push.delivery_chunks set state = 'WAITING', due_at = now(), awaits = 'SERVICE' where id = ${waits}::bigint`);
    const change =
      how === "cancelled" ? sql`state = 'CANCELLED'` : sql`expires_at = now() - interval '1 second'`;
    await lab.db.execute(sql`update push.notifications set ${change}`);
    expect(await aside(taken)).toEqual({ dropped: 5 });
    expect(await states(taken.id)).toEqual({ DONE: 3 });
    expect(await lab.notifications.get(taken.id)).toMatchObject({ planned: 5, dropped: 5, remaining: 0 });
  });

  test("what a cancelled notification has dropped stays dropped when a process meets it", async () => {
    await lab.addDevices([{ userId: "ann" }]);
    const id = await lab.accept();
    await lab.plan();
    await lab.db.execute(sql`update push.notifications set state = 'CANCELLED'`);
    const dropped = { planned: 1, dropped: 1, remaining: 0 };
    expect(await lab.notifications.get(id)).toMatchObject(dropped);
    const { db, leases } = lab.database;
    const processes = new Processes({ db, leases, logger: lab.log.logger, released: () => undefined });
    const [met] = await new ChunkTaker(db, processes, "outbox").take(1, { chunks: 1, retries: 1 }, []);
    expect(met).toMatchObject({ notificationId: id, notification: undefined, devices: [] });
    expect(await lab.notifications.get(id)).toMatchObject(dropped);
    expect(met && (await setAside(db, met))).toEqual({ dropped: 1 });
    expect(await states(id)).toEqual({ DONE: 1 });
  });

  test("one that is to be sent after all is ready, as if it had not been taken", async () => {
    const taken = await sending();
    expect(await aside(taken)).toEqual({ dropped: 0 });
    expect(await states(taken.id)).toEqual({ READY: 3 });
    expect(await rows(lab.db, sql`select distinct takes, retries from push.delivery_chunks`)).toEqual([
      { takes: 0, retries: 3 },
    ]);
  });

  test("who has lost the chunk writes nothing", async () => {
    const taken = await sending();
    await lab.notifications.pause(taken.id);
    expect(await aside({ ...taken, attempt: randomUUID() })).toEqual({ dropped: 0 });
    expect(await states(taken.id)).toEqual({ TAKEN: 1, READY: 2 });
  });
});
