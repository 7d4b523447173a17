/** What the tests of planning share: a lab with a planner whose steps are small, and looks at what it has planned. */
import { type SQL, sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import { expect } from "vitest";
import type { Database } from "../../../src/platform/database/database.ts";
import { createPlanner } from "../../../src/push/notifications/plan-notification.ts";
import { rows } from "../../support/rows.ts";
import type { Backend } from "../../support/servers.ts";
import { allProviders, createLab } from "./notification-lab.ts";

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
