/** How PostgreSQL plans a step of planning, whatever it believes of how many devices there are at the places. */
import { PgDialect } from "drizzle-orm/pg-core";
import postgres from "postgres";
import { expect, test, vi } from "vitest";
import { createPlaces, placesAt } from "../../../src/push/notifications/places.ts";
import { planRange } from "../../../src/push/notifications/plan-range.ts";
import { endOfStep } from "../../../src/push/notifications/plan-ranges.ts";
import { requiredPostgresUrl } from "../../support/postgresql/server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { allProviders, createLab } from "./notification-lab.ts";

const cleanup = suiteCleanup();

test.runIf(backends.includes("PostgreSQL"))(
  "a step looks up the numbers of its users, and reads no others",
  async () => {
    const lab = await createLab("PostgreSQL");
    cleanup.defer(() => lab.drop());
    if (lab.own.settings.kind !== "postgres") throw new Error("not PostgreSQL");
    const url = requiredPostgresUrl();
    url.pathname = `/${lab.own.settings.name}`;
    const owner = postgres(url.href, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => owner.end());
    // Few devices at the offset among many.
    await owner`
      insert into push.devices (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
      select 'user-' || n, 'outbox', n::text, sha256(n::text::bytea), case when n % 500 = 0 then 60 else n % 4 * 15 end,
        now() + interval '1 day', now(), now()
      from generate_series(1, 60000) n`;
    await owner`insert into push.history_users select 'user-' || n, n from generate_series(1, 60000) n`;
    await owner`vacuum analyze push.devices, push.history_users`;
    const notificationId = await lab.accept([60]);
    const found = await lab.db.transaction(async (tx) => {
      const acceptedAt = lab.clock.now();
      const places = await createPlaces()(tx, acceptedAt);
      const range = {
        notificationId,
        isTest: false,
        utcOffsets: [60],
        acceptedAt,
        after: 0,
        through: 60_000,
        turn: 1,
      };
      expect(await endOfStep(tx, range, placesAt(places, [60]), 16_000)).toBe(undefined);
      const execute = vi.spyOn(tx, "execute");
      await planRange(tx, range, places, { providers: allProviders, at: new Date(acceptedAt) });
      const [[statement = ""] = []] = execute.mock.calls;
      execute.mockRestore();
      return typeof statement === "string" ? expect.fail("no parameters") : statement.getSQL();
    });
    const { sql, params } = new PgDialect().sqlToQuery(found);
    const values = params.map((value) => (typeof value === "number" ? String(value) : `'${value}'`));
    await owner.unsafe(`prepare step as ${sql}`);
    for (const kind of ["custom", "generic"]) {
      const lines = await owner.begin(async (tx) => {
        await tx.unsafe("set local enable_seqscan = off; set local enable_bitmapscan = off");
        await tx.unsafe(`set local plan_cache_mode = force_${kind}_plan`);
        return tx.unsafe(`explain execute step(${values.join(", ")})`);
      });
      const plan = lines.map((line) => String(line["QUERY PLAN"])).join("\n");
      expect(plan).toMatch(/history_users_pkey on history_users\b.*\n +Index Cond: \(user_id = /);
      expect(plan, kind).not.toMatch(/(Hash|Merge) (Left|Right) Join/);
    }
  },
);
