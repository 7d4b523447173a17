/** What the tests of planning share: a lab with a planner whose steps are small, and looks at what it has planned. */
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { expect } from "vitest";
import type { Database } from "../../../src/platform/database/database.ts";
import { createAccept, plainRequest } from "../../../src/push/notifications/accept-notification.ts";
import { type Audience, kindOf } from "../../../src/push/notifications/audience.ts";
import { createPlanner } from "../../../src/push/notifications/plan-notification.ts";
import type { ProviderName } from "../../../src/push/provider-settings.ts";
import { rows } from "../../support/rows.ts";
import type { Backend } from "../../support/servers.ts";
import { allProviders, createLab, ttlSeconds } from "./notification-lab.ts";

/** Devices a step, in tests that need steps. */
export const window = 10;

/** A database whose transactions call `before` with the text of each statement before they run it. */
export function betweenStatements(db: Database, before: (text: string) => Promise<void>): Database {
  const watched = (tx: Database) =>
    new Proxy(tx, {
      get: (target, name) =>
        name === "execute"
          ? async (statement: SQL) => {
              await before(new PgDialect().sqlToQuery(statement).sql);
              return tx.execute(statement);
            }
          : Reflect.get(target, name),
    });
  return new Proxy(db, {
    get: (target, name) =>
      name === "transaction"
        ? (work: (tx: Database) => Promise<unknown>) => db.transaction((tx) => work(watched(tx)))
        : Reflect.get(target, name),
  });
}

export type PlanningLab = Awaited<ReturnType<typeof createPlanningLab>>;

export async function createPlanningLab(backend: Backend) {
  const lab = await createLab(backend);
  /** 100 devices of 40 users. */
  const manyDevices = () =>
    lab.addDevices(Array.from({ length: 100 }, (_, index) => ({ userId: `user-${index % 40}` })));
  /** Accepts a notification to an audience. @param providers with them, it is planned at once if it is small */
  async function acceptTo(
    audience: Partial<Audience>,
    { history = true, providers }: { history?: boolean; providers?: readonly ProviderName[] } = {},
  ): Promise<string> {
    const accept = createAccept({ ...lab, ttlSeconds, ...(providers && { providers }) });
    const request = plainRequest({ title: "Title", message: "Message", image: null }, audience);
    const delivery = { ...request.delivery, history };
    const kind = kindOf(request.audience);
    const accepted = await accept({
      ...{ clientId: "backoffice", kind, request: { ...request, delivery } },
      idempotencyKey: undefined,
    });
    return accepted.notificationId;
  }
  /** Gives a device to a user, as registering its token does. @returns its new id */
  async function handOver(id: number | undefined, user: string): Promise<number> {
    const [moved] = await rows<{ id: string }>(
      lab.db,
      sql`
        update push.devices
        set id = nextval('push.devices_id_seq'), user_id = ${user}, registered_at = now(), renewed_at = now()
        where id = ${id ?? 0} returning id::text`,
    );
    return Number(moved?.id);
  }
  const planned = async (id: string) => (await lab.chunks(id)).flatMap(({ devices }) => devices);
  const progress = (id: string) => lab.notifications.get(id);
  /** A planner; `between` is called in each step when its chunks are made, before the notification is locked. */
  const planner = (between: () => Promise<unknown> | unknown = () => undefined, db = lab.db) => {
    const stepping = betweenStatements(db, async (text) => {
      if (/from "push"\."notifications".*for update/.test(text)) await between();
    });
    return createPlanner({ ...lab, db: stepping, providers: allProviders, window });
  };
  async function planSteps(steps: number): Promise<void> {
    for (let step = 0; step < steps; step += 1) await planner()(await lab.takeRange());
  }
  /** As if the process died in the middle of a step, and a minute went by. */
  async function dieInStep(): Promise<void> {
    const dying = planner(() => Promise.reject(new Error("died")));
    await expect(dying(await lab.takeRange())).rejects.toThrow("died");
    await lab.makeDue();
  }
  const rangesLeft = async () => (await rows(lab.db, sql`select 1 from push.plan_ranges`)).length;
  async function expectAllOnce(id: string, devices: readonly number[]): Promise<void> {
    expect((await planned(id)).toSorted((a, b) => a - b)).toEqual(devices);
    const { recipients, planned: sum, remaining } = await progress(id);
    expect({ recipients, sum, remaining }).toEqual({ recipients: 40, sum: 100, remaining: 100 });
    expect(await lab.recipients(id)).toHaveLength(40);
    expect(await rangesLeft()).toBe(0);
  }
  return {
    ...lab,
    ...{
      manyDevices,
      acceptTo,
      handOver,
      planned,
      progress,
      planner,
      planSteps,
      dieInStep,
      rangesLeft,
      expectAllOnce,
    },
  };
}
