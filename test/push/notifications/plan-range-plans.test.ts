/** How PostgreSQL plans a step of planning, whatever it believes of how many devices there are at the places. */
import { PgDialect } from "drizzle-orm/pg-core";
import postgres from "postgres";
import { describe, expect, test, vi } from "vitest";
import { createPlaces, placesAt } from "../../../src/push/notifications/places.ts";
import { planRange } from "../../../src/push/notifications/plan-range.ts";
import { endOfStep } from "../../../src/push/notifications/plan-ranges.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { allProviders, createLab, type Lab } from "./notification-lab.ts";

const cleanup = suiteCleanup();

/** A lab, and a connection as the owner of its tables, of which PostgreSQL gathers no statistics unasked. */
async function createOwnedLab(): Promise<{ lab: Lab; owner: postgres.Sql }> {
  const lab = await createLab("PostgreSQL");
  cleanup.defer(() => lab.drop());
  if (lab.own.settings.kind !== "postgres") throw new Error("not PostgreSQL");
  const url = requiredPostgresUrl();
  url.pathname = `/${lab.own.settings.name}`;
  const owner = postgres(url.href, { max: 1, onnotice: () => undefined });
  cleanup.defer(() => owner.end());
  await owner`alter table push.devices set (autovacuum_enabled = false)`;
  return { lab, owner };
}

/** Adds devices from the n-th on, each at the offset of an expression of `n`. */
const addDevices = (owner: postgres.Sql, first: number, last: number, utcOffset: string) =>
  owner.unsafe(`
    insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
    select 'user-' || n, 'outbox', n::text, sha256(n::text::bytea), ${utcOffset}, now() + interval '1 day', now(), now()
    from generate_series(${first}, ${last}) n`);

interface Statement {
  readonly text: string;
  /** Literals of SQL. */
  readonly values: readonly string[];
}

/** A step of planning, in statements. */
interface Step {
  readonly settings: Statement;
  /** Where its range is to end is found by these. */
  readonly search: readonly Statement[];
  /** The end that they found. */
  readonly end: number | undefined;
  readonly plan: Statement;
}

/** Takes a step of up to 512 devices, and plans it by places. */
async function takeStep(lab: Lab, utcOffsets: readonly number[], after: number): Promise<Step> {
  const notificationId = await lab.accept([...utcOffsets]);
  return lab.db.transaction(async (tx) => {
    const acceptedAt = lab.clock.now();
    const places = await createPlaces()(tx, acceptedAt);
    const range = { notificationId, isTest: false, utcOffsets, acceptedAt, after, through: 60_000, turn: 1 };
    const execute = vi.spyOn(tx, "execute");
    const end = await endOfStep(tx, range, placesAt(places, utcOffsets), 512);
    const part = { ...range, through: end ?? range.through };
    await planRange(tx, part, places, { providers: allProviders, at: new Date(acceptedAt) });
    const [settings, ...others] = execute.mock.calls.map(([query]): Statement => {
      const { sql, params } = new PgDialect().sqlToQuery(
        typeof query === "string" ? expect.fail(query) : query.getSQL(),
      );
      return {
        text: sql,
        values: params.map((value) => (typeof value === "number" ? `${value}` : `'${value}'`)),
      };
    });
    execute.mockRestore();
    const plan = others.pop();
    if (!settings || !plan) throw new Error("a step without statements");
    return { settings, search: others, end, plan };
  });
}

/** How PostgreSQL executes a statement of a step, with a plan for these values, and with one for any. */
async function explain(
  owner: postgres.Sql,
  { settings }: Step,
  { text, values }: Statement,
): Promise<string[]> {
  await owner.unsafe(`prepare statement as ${text}`);
  const plans: string[] = [];
  for (const kind of ["custom", "generic"]) {
    const lines = await owner.begin(async (tx) => {
      await tx.unsafe(settings.text);
      await tx.unsafe(`set local plan_cache_mode = force_${kind}_plan`);
      return tx.unsafe(`explain (analyze, buffers, timing off) execute statement(${values.join(", ")})`);
    });
    plans.push([kind, ...lines.map((line) => String(line["QUERY PLAN"]))].join("\n"));
  }
  await owner.unsafe("deallocate statement");
  return plans;
}

/** The pages that PostgreSQL looked at. */
function pagesOf(plan: string): number {
  const [, hit = "", read = "0"] =
    /Buffers: shared hit=(\d+)(?: read=(\d+))?/.exec(plan) ?? expect.fail(plan);
  return Number(hit) + Number(read);
}

describe.runIf(backends.includes("PostgreSQL"))("on PostgreSQL a step", () => {
  test("looks up the numbers of its users, and reads no others", async () => {
    const { lab, owner } = await createOwnedLab();
    // Few devices at the offset among many.
    await addDevices(owner, 1, 60_000, "case when n % 500 = 0 then 60 else n % 4 * 15 end");
    await owner`insert into push.history_users select 'user-' || n, n from generate_series(1, 60000) n`;
    await owner`vacuum analyze push.devices, push.history_users`;
    const step = await takeStep(lab, [60], 0);
    expect(step.end).toBe(undefined);
    for (const plan of await explain(owner, step, step.plan)) {
      expect(plan).toMatch(/history_users_pkey on history_users\b.*\n +Index Cond: \(user_id = /);
      expect(plan).not.toMatch(/(Hash|Merge) (Left|Right) Join/);
    }
  });

  test.each([
    ["none", []],
    ["of one place", [1_000]],
    ["of all places", [1_000, 60_000]],
  ])("reads no devices beyond its range or at other places, with statistics: %s", async (_, analyzedAt) => {
    const { lab, owner } = await createOwnedLab();
    for (const [first, last, utcOffset] of [
      [1, 1_000, "0"],
      // Four places side by side, and one with a device in a thousand.
      [1_001, 60_000, "case when n % 1000 = 0 then 600 else n % 4 * 15 end"],
    ] as const) {
      await addDevices(owner, first, last, utcOffset);
      if (analyzedAt.includes(last)) await owner`analyze push.devices`;
    }
    // From some ten millions of devices on, this index has a level more than that of ids, and looks dearer by it.
    await owner`alter index push.devices_place set (fillfactor = 10)`;
    await owner`reindex index push.devices_place`;
    for (const [utcOffsets, end] of [
      [[0, 15, 30, 45], 2_512],
      [[600], undefined],
    ] as const) {
      const step = await takeStep(lab, utcOffsets, 2_000);
      expect(step.end).toBe(end);
      for (const statement of step.search) {
        for (const plan of await explain(owner, step, statement))
          expect(pagesOf(plan), plan).toBeLessThan(100);
      }
      for (const plan of await explain(owner, step, step.plan)) {
        expect(plan).not.toContain("devices_pkey");
        expect(plan).toMatch(/devices_place on devices\b.*\n +Index Cond: .*= wanted\.place\).*\(id <= /);
      }
    }
  });
});
