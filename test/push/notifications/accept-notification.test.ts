/** Acceptance: once it is answered, a notification is durable; the same key sends nothing twice. */
import { sql } from "drizzle-orm";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import type { SendRequest } from "../../../src/push/notifications/accept-notification.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab, ttlSeconds } from "./notification-lab.ts";

const send: SendRequest = {
  title: "News",
  message: "It rains.",
  image: "a/rain.png",
  utcOffsets: [330, -60],
};
const reused = { kind: { code: "idempotency_key_reused", status: 409 } };

describe.each(backends)("accepting notifications on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });
  beforeEach(() => lab.clear());

  const accept = (key?: string, changes: Partial<SendRequest> = {}, client = "backoffice") =>
    lab.notifications.accept(client, { ...send, ...changes }, key);
  const count = async () => (await lab.notifications.list({ page: 0, size: 1 })).totalElements;

  test("a notification, its event and its range are there together", async () => {
    const { notificationId } = await accept();
    const [stored] = await rows(
      lab.db,
      sql`select extract(epoch from expires_at - accepted_at)::int as ttl, client_id, state,
        left(replace(id::text, '-', ''), 12) = lpad(to_hex((extract(epoch from accepted_at) * 1000)::bigint), 12, '0') as ordered
        from push.notifications where id = ${notificationId}::uuid`,
    );
    expect(stored).toEqual({ ttl: ttlSeconds, client_id: "backoffice", state: "PLANNING", ordered: true });
    expect(await lab.takeRange()).toMatchObject({ notificationId, rangeNumber: 0 });
    expect(await lab.events("push.notification.accepted.v1")).toEqual([
      { notificationId, clientId: "backoffice", utcOffsets: [330, -60], test: false },
    ]);
    expect(await lab.notifications.get(notificationId)).toMatchObject({
      ...{ id: notificationId, title: "News", message: "It rains.", image: "a/rain.png", test: false },
      ...{
        state: "PLANNING",
        acceptedAt: new Date(lab.clock.now()).toISOString(),
        completedAt: null,
        planned: 0,
      },
    });
  });

  test("a key finds what its client has sent with it, and nothing else", async () => {
    const { notificationId } = await accept("ours");
    const other = await accept("ours", {}, "other");
    await accept("another");
    const sentWith = async (idempotencyKey: string, clientId = "backoffice") => {
      const key = { clientId, idempotencyKey };
      const { content, ...page } = await lab.notifications.list({ page: 0, size: 20 }, { sentWith: key });
      return { ...page, ids: content.map(({ id }) => id) };
    };
    const one = { number: 0, size: 20, totalElements: 1 };
    expect(await sentWith("ours")).toEqual({ ...one, ids: [notificationId] });
    expect(await sentWith("ours", "other")).toEqual({ ...one, ids: [other.notificationId] });
    expect(await sentWith("nobody's")).toEqual({ ...one, totalElements: 0, ids: [] });
  });

  test("50 parallel calls with one key are one notification, one event, one range", async () => {
    const answers = await Promise.all(Array.from({ length: 50 }, () => accept("same")));
    expect(new Set(answers.map(({ notificationId }) => notificationId)).size).toBe(1);
    expect(await count()).toBe(1);
    expect(await lab.takeRange()).toMatchObject(answers[0] ?? {});
    await expect(lab.takeRange()).rejects.toThrow("no range is due");
    expect(await lab.events("push.notification.accepted.v1")).toHaveLength(1);
  });

  test.runIf(backend === "PostgreSQL")("so are those of two processes", async () => {
    const other = await lab.own.open();
    const second = lab.notificationsOf(other.db);
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, index) =>
        (index % 2 === 0 ? lab.notifications : second).accept("backoffice", send, "same"),
      ),
    );
    expect(new Set(answers.map(({ notificationId }) => notificationId)).size).toBe(1);
    expect(await count()).toBe(1);
  });

  test("the same request under the same key, its offsets in another order, is the first notification", async () => {
    const first = await accept("key");
    lab.clock.move(10);
    expect(await accept("key", { utcOffsets: [-60, 330] })).toEqual(first);
    expect(await count()).toBe(1);
  });

  test.each<[string, Partial<SendRequest>]>([
    ["title", { title: "Other" }],
    ["message", { message: "Other" }],
    ["image", { image: null }],
    ["offsets", { utcOffsets: [330] }],
  ])("another %s under the same key is refused, and nothing is sent", async (_, change) => {
    await accept("key");
    await expect(accept("key", change)).rejects.toMatchObject(reused);
    expect(await count()).toBe(1);
  });

  test("of parallel calls with one key and different bodies one is taken, the others are refused", async () => {
    const calls = Array.from({ length: 10 }, (_, index) => accept("key", { title: `Title ${index}` }));
    const outcomes = await Promise.allSettled(calls);
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    for (const outcome of outcomes) {
      if (outcome.status === "rejected") expect(outcome.reason).toMatchObject(reused);
    }
    expect(await count()).toBe(1);
  });

  test("a key is one client's own, and no client and key read together as another's", async () => {
    await accept("b-key", {}, "a");
    await accept("key", { title: "Other" }, "a-b");
    await accept("b-key", { title: "Other" }, "c");
    expect(await count()).toBe(3);
  });

  test("a key holds for less than 24 hours, and is free again at their end", async () => {
    const first = await accept("key");
    lab.clock.move(24 * 3600 - 1);
    await expect(accept("key", { title: "Other" })).rejects.toMatchObject(reused);
    lab.clock.move(1);
    const second = await accept("key", { title: "Other" });
    expect(second).not.toEqual(first);
    expect(await accept("key", { title: "Other" })).toEqual(second);
  });

  test("without a key each call is a notification", async () => {
    await Promise.all([accept(), accept(), accept()]);
    expect(await count()).toBe(3);
  });

  test("text of every kind comes back as it was", async () => {
    const title = `"quoted" \\ {a,b} NULL 😀`;
    const { notificationId } = await accept(undefined, { title, message: "'; drop table push.history; --" });
    expect(await lab.notifications.get(notificationId)).toMatchObject({
      title,
      message: "'; drop table push.history; --",
    });
  });
});
