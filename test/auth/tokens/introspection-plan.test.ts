/** Introspection finds authorizations by their ids, whatever PostgreSQL believes of the sizes of tables. */
import { expect, test } from "vitest";
import { authApi } from "../../support/auth-api.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { createAuthStore } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";
import { waitFor } from "../../support/wait-for.ts";

test.runIf(backends.includes("PostgreSQL"))(
  "introspection reads no table of authorizations as a whole",
  async () => {
    await using cleanup = new AsyncDisposableStack();
    const store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    const server = await startAuthServer("PostgreSQL", { env: store.env });
    cleanup.defer(() => server.stop());
    const api = authApi(server.base);
    const { access_token } = await api.newPair((await api.newIdentity()).id);

    const plan = await store.read(async (query) => {
      const columns = await query(`
      select string_agg(quote_ident(column_name), ', ') as names from information_schema.columns
      where table_schema = 'auth' and table_name = 'authorizations' and column_name not in ('id', 'identity_id')`);
      const names = String(columns[0]?.["names"]);
      await query(`
      insert into auth.authorizations (id, identity_id, ${names})
      select gen_random_uuid(), 'user-' || n, ${names} from auth.authorizations, generate_series(1, 6000) n`);
      await query("vacuum analyze");
      // As PostgreSQL shows it, until the connection is used for another one.
      const statement = await waitFor(async () => {
        expect(await api.introspect(access_token)).toMatchObject({ active: true });
        const [running] = await query(`
        select query from pg_stat_activity
        where datname = current_database() and application_name = 'gatepost' and query like '%as "places"%'`);
        return String(running?.["query"] ?? expect.fail("not seen"));
      });
      await query(`prepare introspection as ${statement}`);
      // A plan for any parameters is what PostgreSQL keeps if it believes that others are no better.
      await query("set plan_cache_mode = force_generic_plan");
      const lines = await query("explain execute introspection('{}', 36)");
      return lines.map((line) => String(line["QUERY PLAN"]));
    });
    expect(plan.filter((line) => line.includes("Index Scan") && line.includes("authorizations"))).not.toEqual(
      [],
    );
    expect(plan.filter((line) => line.includes("Seq Scan on authorizations"))).toEqual([]);
  },
);
