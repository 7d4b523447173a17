/** The list of notifications, as an operator pages through it. */
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test, vi } from "vitest";
import type { NotificationState } from "../../../src/push/notifications/lock-notification.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { createLab, type Lab } from "./notification-lab.ts";

describe.each(backends)("the notifications on %s", (backend) => {
  let lab: Lab;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    lab = await createLab(backend);
    cleanup.defer(() => lab.drop());
  });

  test("the list has the newest first, page by page, and says how many there are", async () => {
    expect(await lab.notifications.list({ page: 0, size: 2 })).toEqual({
      ...{ content: [], number: 0, size: 2, totalElements: 0 },
    });
    const ids: string[] = [];
    for (let index = 0; index < 3; index += 1) {
      ids.unshift(await lab.accept());
      lab.clock.move(1);
    }
    const pages = await Promise.all([0, 1, 2].map((page) => lab.notifications.list({ page, size: 2 })));
    expect(pages.map(({ content }) => content.map(({ id }) => id))).toEqual([
      ids.slice(0, 2),
      ids.slice(2),
      [],
    ]);
    expect(pages.map(({ totalElements }) => totalElements)).toEqual([3, 3, 3]);
    expect(pages[0]?.content[0]).toEqual(await lab.notifications.get(ids[0] ?? ""));
  });

  test("those in some states are listed, page by page, and counted by themselves", async () => {
    await lab.clear();
    const [paused, cancelled, completed, planning] = await Promise.all([0, 1, 2, 3].map(() => lab.accept()));
    await lab.notifications.pause(paused ?? "");
    await lab.notifications.cancel(cancelled ?? "");
    await lab.db.execute(sql`
      update push.notifications set state = 'COMPLETED', completed_at = now(), planned_at = now()
      where id = ${completed}::uuid`);
    const found = async (states: readonly NotificationState[], page = 0) => {
      const { content, totalElements } = await lab.notifications.list({ page, size: 1 }, { states });
      return [content.map(({ id }) => id), totalElements];
    };
    expect(await found(["PAUSED"])).toEqual([[paused], 1]);
    expect(await found(["CANCELLED"])).toEqual([[cancelled], 1]);
    expect(await found(["COMPLETED"])).toEqual([[completed], 1]);
    const [newer, older] = [paused, planning].toSorted().toReversed();
    expect(await found(["PLANNING", "SENDING", "PAUSED"])).toEqual([[newer], 2]);
    expect(await found(["PLANNING", "SENDING", "PAUSED"], 1)).toEqual([[older], 2]);
    const key = { clientId: "backoffice", idempotencyKey: "nobody's" };
    const both = { sentWith: key, states: ["PAUSED"] as const };
    expect(await lab.notifications.list({ page: 0, size: 1 }, both)).toMatchObject({ totalElements: 0 });
  });

  test("those that have not ended are found by their index, however many have", async () => {
    await lab.clear();
    await lab.db.execute(sql`
      insert into push.notifications (id, title, message, utc_offsets, state, accepted_at, expires_at, completed_at)
      select gen_random_uuid(), 't', 'm', '{0}', 'COMPLETED', now(), now(), now() from generate_series(1, 5000)`);
    const id = await lab.accept();
    const execute = vi.spyOn(lab.db, "execute");
    const count = vi.spyOn(lab.db, "$count");
    const states = ["PLANNING", "SENDING", "PAUSED"] as const;
    expect(await lab.notifications.list({ page: 0, size: 20 }, { states })).toMatchObject({
      ...{ totalElements: 1, content: [{ id }] },
    });
    const statements = [
      execute.mock.calls[0]?.[0],
      sql`select count(*) from push.notifications where ${count.mock.calls[0]?.[1]}`,
    ];
    vi.restoreAllMocks();
    for (const statement of statements) {
      const plan = (await rows<Record<string, unknown>>(lab.db, sql`explain ${statement}`))
        .flatMap(Object.values)
        .join("\n");
      expect(plan).toContain("notifications_unfinished");
      expect(plan).not.toContain("Seq Scan on notifications");
    }
  });
});
