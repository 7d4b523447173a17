/** How PostgreSQL plans what finds tokens by their keys, whatever it believes of the sizes of tables. */
import { randomBytes, randomUUID } from "node:crypto";
import { PgDialect } from "drizzle-orm/pg-core";
import { beforeAll, describe, expect, test, vi } from "vitest";
import { authMigrations } from "../../../src/auth/service.ts";
import { createHasActiveAuthorization } from "../../../src/auth/tokens/has-active-authorization.ts";
import { createAuthorizationRepository } from "../../../src/auth/tokens/introspect.ts";
import { createFindPresented } from "../../../src/auth/tokens/presented-token.ts";
import { createRotations } from "../../../src/auth/tokens/rotations.ts";
import { createUserAuthorizations } from "../../../src/auth/tokens/user-authorizations.ts";
import type { Database, Reads } from "../../../src/platform/database/database.ts";
import { authApi } from "../../support/auth-api.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const introspect = (reads: Reads) =>
  createAuthorizationRepository(reads).isActive(`${randomUUID()}.${randomBytes(16).toString("base64url")}`);
const refresh = (reads: Reads) =>
  createFindPresented(reads)({
    authorizationId: randomUUID(),
    family: randomBytes(32),
    rotating: randomBytes(32),
  });
/** The first page of a user's authorizations. */
const list = (db: Database, active: boolean) =>
  createUserAuthorizations(db, unconfirmed).list("heavy", { active, after: undefined, size: 20 });
const unconfirmed = {
  untilStandbysKnow: () => Promise.resolve(),
  confirmFound: <T>(act: () => Promise<T>) => act(),
};
const guess = (reads: Reads) => createHasActiveAuthorization(reads)("user-1", "backend");

const rotation = (reads: Reads) => {
  const token = () => ({
    authorizationId: randomUUID(),
    family: randomBytes(32),
    rotating: randomBytes(32),
  });
  return createRotations(reads, () => undefined).rotate({
    presented: token(),
    next: token(),
    sealedPair: randomBytes(600),
    lifetimes: { accessTokenSeconds: 900, refreshTokenSeconds: 86_400, refreshGraceSeconds: 30 },
  });
};

/** What a look-up asks the database, as PostgreSQL prepares and executes it. */
async function statementOf(
  reads: Reads,
  lookUp: (reads: Reads) => unknown,
): Promise<{ prepare: string; execute: string }> {
  const execute = vi.spyOn(reads, "execute");
  await lookUp(reads);
  const [[statement = ""] = []] = execute.mock.calls;
  vi.restoreAllMocks();
  if (typeof statement === "string") throw new Error("a statement without parameters");
  const { sql, params } = new PgDialect().sqlToQuery(statement.getSQL());
  const values = params.map((value) => (typeof value === "number" ? String(value) : `'${value}'`));
  return { prepare: `prepare look_up as ${sql}`, execute: `execute look_up(${values.join(", ")})` };
}

/** A node of a plan in JSON, as far as these tests look at it. */
interface PlanNode {
  readonly "Node Type": string;
  readonly "Parent Relationship"?: string;
  readonly "Relation Name"?: string;
  readonly "Index Name"?: string;
  readonly Alias?: string;
  readonly Filter?: string;
  readonly "Shared Hit Blocks": number;
  readonly "Shared Read Blocks": number;
  readonly Plans?: readonly PlanNode[];
}

/** The node and all below it that are executed no more often than it. */
function nodesBesideSubPlans(node: PlanNode): PlanNode[] {
  const below = (node.Plans ?? []).filter((child) => child["Parent Relationship"] !== "SubPlan");
  return [node, ...below.flatMap(nodesBesideSubPlans)];
}

/** The node and all below it. */
function nodesOf(node: PlanNode): PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)];
}

describe.runIf(backends.includes("PostgreSQL"))("among thousands of authorizations", () => {
  let store: AuthStore;
  let db: Database;
  let reads: Reads;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase("PostgreSQL", authMigrations);
    cleanup.defer(() => own.drop());
    const database = await own.open();
    // Those of its statements that write find nothing to write.
    db = database.db;
    reads = db;
    store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    const server = await startAuthServer("PostgreSQL", { env: store.env });
    cleanup.defer(() => server.stop());
    const api = authApi(server.base);
    await api.newPair((await api.newIdentity()).id);
    await store.read(async (query) => {
      const columns = await query(`
      select string_agg(quote_ident(column_name), ', ') as names from information_schema.columns
      where table_schema = 'auth' and table_name = 'authorizations' and column_name not in ('id', 'identity_id')`);
      const names = String(columns[0]?.["names"]);
      // As a table is that grew by much since PostgreSQL looked at it last.
      for (let part = 0; part < 8; part += 1)
        await query(`alter table auth.authorizations_${part} set (autovacuum_enabled = off)`);
      await query("vacuum analyze");
      await query(`
      insert into auth.authorizations (id, identity_id, ${names})
      select gen_random_uuid(), 'user-' || n, ${names} from auth.authorizations, generate_series(1, 100000) n`);
    });
  });

  const primaryKey = /_pkey$/;
  const statements: [string, (reads: Reads) => unknown, RegExp][] = [
    ["introspection", introspect, primaryKey],
    ["refresh", refresh, primaryKey],
    ["a rotation", rotation, primaryKey],
    ["a guess beyond the limit of its client", guess, /_identity_id_id_client_id_idx$/],
  ];

  /** The plan for any parameters, which is what PostgreSQL keeps if it believes that others are no better. */
  async function planOf(lookUp: (reads: Reads) => unknown): Promise<PlanNode> {
    const { prepare, execute } = await statementOf(reads, lookUp);
    return store.read(async (query) => {
      await query(prepare);
      await query("set plan_cache_mode = force_generic_plan");
      const [row] = await query(`explain (format json) ${execute}`);
      const [explained]: readonly { Plan: PlanNode }[] = Object(row?.["QUERY PLAN"]);
      return explained?.Plan ?? expect.fail("there is no plan");
    });
  }

  /** By which indexes authorizations are found, and the tables of them that are read without one. */
  async function scansOf(lookUp: (reads: Reads) => unknown): Promise<string[]> {
    const scans = nodesOf(await planOf(lookUp)).filter(
      (node) =>
        node["Node Type"] !== "Bitmap Heap Scan" &&
        /^authorizations_\d/.test(node["Relation Name"] ?? node["Index Name"] ?? ""),
    );
    expect(scans).not.toEqual([]);
    return scans.map((node) => node["Index Name"] ?? `all of ${node["Relation Name"]}`);
  }

  test.each(statements)(
    "%s reads only its own by an index, before statistics are new",
    async (_name, lookUp, index) => {
      expect((await scansOf(lookUp)).filter((found) => !index.test(found))).toEqual([]);
    },
  );

  describe.each(statements)("%s", (name, lookUp, index) => {
    beforeAll(() => store.read((query) => query("vacuum analyze")));

    test("reads only its own by an index", async () => {
      expect((await scansOf(lookUp)).filter((found) => !index.test(found))).toEqual([]);
    });

    test("looks for what ended an authorization once it is found, and joins nothing", async () => {
      const plan = await planOf(lookUp);
      const tables = (nodes: PlanNode[]) => nodes.map((node) => `${node["Relation Name"]} ${node.Alias}`);
      const looks = ["clients c", "identity_endings e"];
      expect(tables(nodesOf(plan))).toEqual(expect.arrayContaining(looks));
      expect(tables(nodesBesideSubPlans(plan)).filter((table) => looks.includes(table))).toEqual([]);
    });

    test.skipIf(name === "a rotation")("is planned once, for however few tokens", async () => {
      const { prepare, execute } = await statementOf(reads, lookUp);
      const plans = await store.read(async (query) => {
        await query(prepare);
        for (let n = 0; n < 8; n += 1) await query(execute);
        const [counts] = await query(
          "select generic_plans::int, custom_plans::int from pg_prepared_statements where name = 'look_up'",
        );
        return counts;
      });
      // PostgreSQL tries five times what a plan for the values at hand would cost.
      expect(plans).toEqual({ custom_plans: 5, generic_plans: 3 });
    });
  });

  describe("a page of a user with 50,000 authorizations", () => {
    beforeAll(async () => {
      await store.read((query) =>
        query(`
      insert into auth.identities (id, phone, created_at, updated_at) values ('heavy', '+12025550100', now(), now());
      insert into auth.authorizations
      select (jsonb_populate_record(a, jsonb_build_object('id', gen_random_uuid(), 'identity_id', 'heavy',
        'client_id', 'backoffice'))).* from auth.authorizations a limit 50000`),
      );
    });

    test.each([
      { which: "all", active: false, plan: "generic" },
      { which: "those that are active", active: true, plan: "custom" },
    ])("of $which reads a page of each index, and no more, by a $plan plan", async ({ active, plan }) => {
      const { prepare, execute } = await statementOf(reads, () => list(db, active));
      const [row] = await store.read(async (query) => {
        await query(prepare);
        await query(`set plan_cache_mode = force_${plan}_plan`);
        return query(`explain (analyze, buffers, format json) ${execute}`);
      });
      const [{ Plan }]: readonly [{ Plan: PlanNode }] = Object(row?.["QUERY PLAN"]);
      const scans = nodesOf(Plan).flatMap((node) => node["Index Name"] ?? []);
      const own = /^authorizations_\d_identity_id_id_(client_id_)?idx$/;
      expect(scans.filter((name) => name.startsWith("authorizations") && !own.test(name))).toEqual([]);
      // Three levels of an index, and of that of those that are marked, in eight partitions; and the rows of a page.
      expect(Plan["Shared Hit Blocks"] + Plan["Shared Read Blocks"]).toBeLessThan(300);
    });
  });

  test("introspection sets up what it looks for once, and not for each partition", async () => {
    const filters = nodesOf(await planOf(introspect)).filter(({ Filter }) => Filter?.includes("SubPlan"));
    expect(filters.length).toBe(1);
  });

  describe("where two identities have thousands of endings", () => {
    beforeAll(() =>
      store.read(async (query) => {
        await query(`
        insert into auth.identity_endings (identity_id, reason, ended_at)
        select 'probe-' || n % 2, 'password_changed', now() from generate_series(1, 3000) n`);
        await query("vacuum analyze auth.identity_endings");
      }),
    );

    test.each(statements)("%s reads only those of its identity", async (_name, lookUp) => {
      const looks = nodesOf(await planOf(lookUp)).filter(
        (node) => node["Relation Name"] === "identity_endings",
      );
      expect(looks).not.toEqual([]);
      expect(looks.filter((node) => node["Index Name"] === undefined)).toEqual([]);
    });
  });
});
