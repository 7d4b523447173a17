/**
 * What reading history costs where there is much of it: on a table of HISTORY_TEST_ROWS entries (500,000 unless
 * given), for a user who has 10,000 of them. Told by the plans that PostgreSQL makes and by the blocks that it
 * touches, which are the same on a fast machine and a slow one.
 */

import type { SQL } from "drizzle-orm";
import { PgDialect } from "drizzle-orm/pg-core";
import postgres from "postgres";
import { beforeAll, describe, expect, test } from "vitest";
import { pushMigrations } from "../../../src/push/database.ts";
import { orderOf } from "../../../src/push/history/history-order.ts";
import {
  allViewedStatement,
  pageStatement,
  pageViewedStatement,
} from "../../../src/push/history/history-statements.ts";
import { cleanUp } from "../../../src/push/janitor.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { fillHistory, firstAcceptedAt, largest, notificationCount, unseen } from "./large-history.ts";

const historyRows = Number(process.env["HISTORY_TEST_ROWS"] ?? 500_000);

/** A node of a plan as EXPLAIN gives it in JSON; blocks include those of the nodes below. */
interface PlanNode {
  readonly "Node Type": string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly "Actual Rows": number;
  readonly "Actual Loops": number;
  readonly "Rows Removed by Filter"?: number;
  readonly "Heap Fetches"?: number;
  readonly "Shared Hit Blocks": number;
  readonly "Shared Read Blocks": number;
  readonly Plans?: readonly PlanNode[];
}
interface Explained {
  readonly Plan: PlanNode;
  readonly "Execution Time": number;
}

function nodesOf(plan: PlanNode): PlanNode[] {
  return [plan, ...(plan.Plans ?? []).flatMap(nodesOf)];
}
function blocksOf(plan: PlanNode): number {
  return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"];
}
/**
 * How the rows of history are come by: names of indexes, and of scans without one. What a page's entry says of its user
 * is found by either index of entries, as both have the user.
 */
function waysInto(plan: PlanNode): string[] {
  const scans = nodesOf(plan).filter((node) => node["Node Type"].includes("Scan") && isOfHistory(node));
  const ways = new Set(scans.map((node) => node["Index Name"] ?? node["Node Type"]));
  return [...ways].filter((way) => way !== "history_entries_age").sort();
}
function isOfHistory(node: PlanNode): boolean {
  // A bitmap's index has no relation with it, and the heap that it leads to no index.
  if (node["Node Type"] === "Bitmap Heap Scan") return false;
  return (node["Relation Name"] ?? node["Index Name"] ?? "").startsWith("history_");
}

const dialect = new PgDialect();

const primaryKeys = [
  ...["history_blocks_pkey", "history_entries_pkey", "history_users_pkey", "history_views_pkey"],
];

describe.runIf(backends.includes("PostgreSQL"))("reading a large history", () => {
  let own: ServiceDatabase;
  let owner: postgres.Sql;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createMigratedServiceDatabase("PostgreSQL", pushMigrations);
    cleanup.defer(() => own.drop());
    if (own.settings.kind !== "postgres") throw new Error("not PostgreSQL");
    const url = requiredPostgresUrl();
    url.pathname = `/${own.settings.name}`;
    owner = postgres(url.href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => owner.end());
    await fillHistory(owner, historyRows);
  }, 300_000);

  /**
   * Runs what the service runs, as a prepared statement, and undoes it. With a plan made for these values, as
   * the first few times, or with the one made for any.
   */
  async function explain(statement: SQL, plan: "custom" | "generic"): Promise<Explained> {
    const { sql: text, params } = dialect.sqlToQuery(statement);
    const values = params
      .map((value) => (typeof value === "number" ? String(value) : `'${value}'`))
      .join(", ");
    let explained: Explained | undefined;
    await owner.unsafe(`set plan_cache_mode = force_${plan}_plan`);
    await owner.unsafe(`prepare explained as ${text}`);
    // The second time, as the first has to fetch blocks.
    for (let turn = 0; turn < 2; turn += 1) {
      await owner.unsafe("begin");
      const [row] = await owner.unsafe(
        `explain (analyze, buffers, format json) execute explained (${values})`,
      );
      await owner.unsafe("rollback");
      [explained] = row?.["QUERY PLAN"] ?? [];
    }
    await owner.unsafe("deallocate explained");
    if (process.env["HISTORY_TEST_TIMES"]) {
      process.stderr.write(
        `${expect.getState().currentTestName}: ${plan} ${explained?.["Execution Time"]} ms, ${explained && blocksOf(explained.Plan)} blocks\n`,
      );
    }
    return explained ?? expect.fail("there is no plan");
  }
  function slice(changes: { userId?: string; sort?: string[]; offset?: number } = {}) {
    const { userId = largest.behind, sort = [], offset = 0 } = changes;
    return { userId, order: orderOf(sort), limit: 20, offset };
  }
  function limitOf(plan: PlanNode): PlanNode {
    return nodesOf(plan).find((node) => node["Node Type"] === "Limit") ?? expect.fail("no limit");
  }

  describe.each(["custom", "generic"] as const)("with a %s plan", (kind) => {
    test("the first page reads its 20 entries from the primary key's end, and counts without the table", async () => {
      const { Plan: plan } = await explain(pageStatement(slice(), false), kind);
      expect(waysInto(plan)).toEqual(primaryKeys);
      const limit = limitOf(plan);
      expect(nodesOf(limit)).toContainEqual(
        expect.objectContaining({ "Index Name": "history_blocks_pkey", "Actual Rows": 20 }),
      );
      expect(blocksOf(limit)).toBeLessThan(50);
      const counted = nodesOf(plan).find(
        (node) => node["Index Name"] === "history_blocks_pkey" && node["Actual Rows"] > 20,
      );
      expect(counted).toMatchObject({ "Node Type": "Index Only Scan", "Actual Rows": notificationCount });
      // Of blocks that were written since the last vacuum: here by other tests.
      expect(counted?.["Heap Fetches"]).toBeLessThanOrEqual(2 * unseen);
      expect(nodesOf(plan).filter((node) => node["Node Type"] === "Seq Scan")).toEqual([]);
      expect(blocksOf(plan)).toBeLessThan(600);
    });

    test("a page with an entry that a thousand have reads none of theirs", async () => {
      const { Plan: plan } = await explain(pageStatement(slice({ userId: "user-700" }), false), kind);
      const read = nodesOf(plan).filter((node) => node["Index Name"]?.startsWith("history_entries"));
      expect(read.length).toBeGreaterThan(2);
      for (const node of read) expect(node["Rows Removed by Filter"] ?? 0).toBe(0);
    });

    test("marking its entries costs a few blocks for each of them", async () => {
      const { Plan: plan } = await explain(pageStatement(slice(), true), kind);
      expect(waysInto(plan)).toEqual(primaryKeys);
      const marked = nodesOf(plan).find((node) => node["Node Type"] === "ModifyTable");
      expect(marked?.Plans).toMatchObject([{ "Actual Rows": unseen }]);
      expect(nodesOf(plan).filter((node) => node["Node Type"] === "Seq Scan")).toEqual([]);
      expect(blocksOf(plan)).toBeLessThan(650);
    });

    test("a page in an order that no index has reads that user's entries and no others", async () => {
      for (const sort of [["viewed,asc"], ["sendAt,desc", "id,asc"]]) {
        const { Plan: plan } = await explain(pageStatement(slice({ sort }), false), kind);
        expect(waysInto(plan)).toEqual(primaryKeys);
        const read = Math.max(...nodesOf(plan).map((node) => node["Actual Rows"]));
        expect(read).toBe(notificationCount);
      }
    });

    test("the last page reads that user's entries and no others", async () => {
      const offset = notificationCount - 10;
      const { Plan: plan } = await explain(pageStatement(slice({ offset }), false), kind);
      expect(waysInto(plan)).toEqual(primaryKeys);
      expect(limitOf(plan)["Actual Rows"]).toBe(10);
    });

    test.each([
      ["somebody who has seen all of 10,000", largest.upToDate],
      ["somebody who has seen all but a few", largest.behind],
      ["somebody who has seen most of a few", "user-77"],
      ["somebody without entries", "nobody"],
    ])(
      "the summary for %s reads that user's entries and views, each once and without the tables",
      async (_, userId) => {
        const { Plan: plan } = await explain(allViewedStatement(userId), kind);
        for (const way of waysInto(plan)) expect(primaryKeys).toContain(way);
        for (const node of nodesOf(plan)) {
          expect(node["Actual Rows"]).toBeLessThanOrEqual(notificationCount);
          expect(node["Actual Loops"]).toBeLessThanOrEqual(1);
        }
        expect(blocksOf(plan)).toBeLessThanOrEqual(500);
      },
    );

    test("the summary of a page reads its entries and no more", async () => {
      const { Plan: plan } = await explain(pageViewedStatement(slice()), kind);
      expect(waysInto(plan)).toEqual(primaryKeys);
      expect(limitOf(plan)["Actual Rows"]).toBe(20);
      expect(blocksOf(plan)).toBeLessThan(300);
    });
  });

  test("the janitor finds what is too old by its index, and nothing by reading the table", async () => {
    const scans = async () => {
      // What this very connection has read before is counted now, and not while the janitor works.
      await owner`select pg_stat_force_next_flush()`;
      const found = await owner<{ name: string; whole: number; gone: number }[]>`
        select relname as name, seq_scan::int as whole, n_tup_del::int as gone from pg_stat_user_tables
        where schemaname = 'push' and relname like 'history%' order by 1`;
      return found.map(({ name, whole, gone }) => ({ name, whole, gone }));
    };
    const before = await scans();
    const expected = await owner<{ gone: number }[]>`
      with old as (select id from push.notifications order by id limit 57)
      select count(*)::int as gone from push.history_blocks where notification_id in (select id from old)
      union all select count(*)::int from push.history_entries where notification_id in (select id from old)
      union all select 0
      union all select count(*)::int from push.history_views where notification_id in (select id from old)`;
    const { db, close } = await own.open();
    const day = 24 * 60 * 60_000;
    for (const days of [0, 1]) {
      const age = Date.now() - (firstAcceptedAt + days * day);
      await cleanUp({ db, historyRetentionDays: age / day });
    }
    // What a connection did is counted by the time that it has ended.
    await close();
    await expect
      .poll(scans)
      .toEqual(before.map((table, index) => ({ ...table, gone: table.gone + (expected[index]?.gone ?? 0) })));
    const [left] = await owner<{ n: number }[]>`select count(*)::int as n from push.notifications`;
    expect(left?.n).toBe(notificationCount - 57);
  });
});
