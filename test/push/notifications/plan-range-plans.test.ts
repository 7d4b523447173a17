/** How PostgreSQL plans a step of planning, whatever it believes of how many devices there are at the zones. */
import { sql } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import postgres from "postgres";
import { describe, expect, test, vi } from "vitest";
import { planRange } from "../../../src/push/notifications/plan-range.ts";
import { endOfStep, ignorePageCosts } from "../../../src/push/notifications/range-devices.ts";
import { createZones, zonesAt } from "../../../src/push/notifications/zones.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import { rows } from "../../support/rows.ts";
import { type Backend, backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { allProviders, createLab, type Lab } from "./notification-lab.ts";

const cleanup = suiteCleanup();

/** Executes statements in one transaction, as the owner of the tables. @returns the rows of the last one */
type Owner = (...statements: string[]) => Promise<readonly Record<string, unknown>[]>;

/** Creates a lab of whose devices PostgreSQL gathers no statistics unasked. */
async function createOwnedLab(backend: Backend): Promise<{ lab: Lab; owner: Owner }> {
  const lab = await createLab(backend);
  cleanup.defer(() => lab.drop());
  const owner = lab.own.settings.kind === "postgres" ? ownerOf(lab.own.settings.name) : embeddedOwner(lab);
  await owner("alter table push.devices set (autovacuum_enabled = false)");
  return { lab, owner };
}

function ownerOf(database: string): Owner {
  const url = requiredPostgresUrl();
  url.pathname = `/${database}`;
  const client = postgres(url.href, { max: 1, onnotice: () => undefined });
  cleanup.defer(() => client.end());
  return (...statements) =>
    client.begin(async (tx) => {
      let last: readonly Record<string, unknown>[] = [];
      for (const statement of statements) last = await tx.unsafe(statement);
      return last;
    });
}

const embeddedOwner =
  ({ db }: Lab): Owner =>
  (...statements) =>
    db.transaction(async (tx) => {
      let last: readonly Record<string, unknown>[] = [];
      for (const statement of statements) last = await rows(tx, sql.raw(statement));
      return last;
    });

/** Adds devices from the n-th on, each at the offset of an expression of `n`. */
const addDevices = (owner: Owner, first: number, last: number, utcOffset: string) =>
  owner(`
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

/** Takes a step of up to 512 devices, and plans it by zones. */
async function takeStep(lab: Lab, utcOffsets: readonly number[], after: number): Promise<Step> {
  const notificationId = await lab.accept([...utcOffsets]);
  return lab.db.transaction(async (tx) => {
    const acceptedAt = lab.clock.now();
    const zones = await createZones()(tx, acceptedAt);
    const range = { notificationId, rangeNumber: 1, utcOffsets, after, through: 60_000, isDense: false };
    const step = { ...range, providers: allProviders, at: new Date(acceptedAt) };
    const execute = vi.spyOn(tx, "execute");
    const end = await ignorePageCosts(tx, async () => {
      const end = await endOfStep(tx, range, zonesAt(zones, utcOffsets), 512);
      await planRange(tx, { ...step, through: end ?? range.through }, zones);
      return end;
    });
    const statements = execute.mock.calls.map(([query]): Statement => {
      const { sql, params } = new PgDialect().sqlToQuery(
        typeof query === "string" ? expect.fail(query) : query.getSQL(),
      );
      return {
        text: sql,
        values: params.map((value) => (typeof value === "number" ? `${value}` : `'${value}'`)),
      };
    });
    const [settings] = statements;
    const search = statements.filter(({ text }) => !text.includes("set_config"));
    const plan = search.pop();
    execute.mockRestore();
    if (!settings || !plan) throw new Error("a step without statements");
    return { settings, search, end, plan };
  });
}

/** How PostgreSQL executes a statement of a step, with a plan for these values, and with one for any. */
async function explain(owner: Owner, { settings }: Step, { text, values }: Statement): Promise<string[]> {
  const plans: string[] = [];
  for (const kind of ["custom", "generic"]) {
    await owner(`prepare statement as ${text}`);
    const lines = await owner(
      settings.text,
      `set local plan_cache_mode = force_${kind}_plan`,
      `explain (analyze, buffers, timing off) execute statement(${values.join(", ")})`,
    );
    await owner("deallocate statement");
    plans.push([kind, ...lines.map((line) => String(line["QUERY PLAN"]))].join("\n"));
  }
  return plans;
}

/** The pages that PostgreSQL looked at. */
function pagesOf(plan: string): number {
  const [, hit = "0", read = "0"] =
    /Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?/.exec(plan) ?? expect.fail(plan);
  return Number(hit) + Number(read);
}

describe.each(backends)("on %s a step", (backend) => {
  test("looks up the numbers of its users, and reads no others", async () => {
    const { lab, owner } = await createOwnedLab(backend);
    // Few devices at the offset among many.
    await addDevices(owner, 1, 60_000, "case when n % 500 = 0 then 60 else n % 4 * 15 end");
    await owner("insert into push.history_users select 'user-' || n, n from generate_series(1, 60000) n");
    await owner("analyze push.devices, push.history_users");
    const step = await takeStep(lab, [60], 0);
    expect(step.end).toBe(undefined);
    for (const plan of await explain(owner, step, step.plan)) {
      expect(plan).toMatch(/history_users_pkey on history_users\b.*\n +Index Cond: \(user_id = /);
      expect(plan).not.toMatch(/(Hash|Merge) (Left|Right) Join/);
    }
  });

  test.each([
    ["none", []],
    ["of one zone", [1_000]],
    ["of all zones", [1_000, 60_000]],
  ])("reads no devices beyond its range or at other zones, with statistics: %s", async (_, analyzedAt) => {
    const { lab, owner } = await createOwnedLab(backend);
    for (const [first, last, utcOffset] of [
      [1, 1_000, "0"],
      // Four zones side by side, and one with a device in a thousand.
      [1_001, 60_000, "case when n % 1000 = 0 then 600 else n % 4 * 15 end"],
    ] as const) {
      await addDevices(owner, first, last, utcOffset);
      if (analyzedAt.includes(last)) await owner("analyze push.devices");
    }
    // From some ten millions of devices on, this index has a level more than that of ids, and looks dearer by it.
    await owner("alter index push.devices_zone set (fillfactor = 10)");
    await owner("reindex index push.devices_zone");
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
        expect(plan).toMatch(/devices_zone on devices\b.*\n +Index Cond: .* = wanted\.zone_id\).*\(id <= /);
      }
    }
  });

  test("leaves the settings for its reads behind before it writes", async () => {
    const { lab } = await createOwnedLab(backend);
    const names = ["enable_seqscan", "enable_bitmapscan", "random_page_cost", "seq_page_cost"];
    const settings = sql`select name, current_setting(name) as value from unnest(${`{${names.join(",")}}`}::text[]) name`;
    await lab.db.transaction(async (tx) => {
      const usual = await rows(tx, settings);
      const meanwhile = await ignorePageCosts(tx, () => rows(tx, settings));
      expect(meanwhile.map(({ value }) => value)).toEqual(["off", "off", "0", "0"]);
      expect(await rows(tx, settings)).toEqual(usual);
    });
  });
});
