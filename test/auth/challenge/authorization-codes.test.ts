/** A new code and the exchange of the last one at the same time: whichever comes first, one code works. */
import { createHash } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import {
  type AuthorizationCodes,
  createAuthorizationCodes,
} from "../../../src/auth/challenge/authorization-codes.ts";
import { createSessions, sessionHashOf } from "../../../src/auth/codes/sessions.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const limits = {
  session: 3,
  phone: 10,
  phone_network: 5,
  address: 60,
  network: 120,
  prefix: 60,
  client: 1000,
};
const codeVerifier = "verifier";
const shown = { codeVerifier, clientId: "app", keyThumbprint: "thumbprint" };

describe.runIf(backends.includes("PostgreSQL"))("a code that is made while the last one is exchanged", () => {
  let db: Database;
  let codes: AuthorizationCodes;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase("PostgreSQL", authMigrations);
    cleanup.defer(() => own.drop());
    const database = await own.open({ poolSize: 8 });
    cleanup.defer(() => database.close());
    ({ db } = database);
    codes = createAuthorizationCodes(db, { now: () => Date.now() });
  });

  /** A session of a right one-time code, and its first authorization code. */
  async function begun() {
    const sessions = createSessions(db, { limits, resendSeconds: 60 });
    const { authSession } = await sessions.insert(
      {
        ...{ phone: "+12025550123", clientId: "app", scopes: undefined, keyThumbprint: "thumbprint" },
        codeChallenge: createHash("sha256").update(codeVerifier).digest("base64url"),
        ...{ identity: undefined, isSent: true },
      },
      "123456",
    );
    const session = sessionHashOf(authSession);
    return { session, last: (await codes.issue(session)) ?? expect.fail() };
  }
  const waiting = sql`
    select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;

  const exchange = (code: string) => codes.exchange({ code, ...shown });

  // Whichever waits longer may be tried again, and so come second.
  test.each(["a new code", "the exchange"])(
    "is void or valid, where %s is first to wait for the row",
    async (first) => {
      const { session, last } = await begun();
      const calls = [() => codes.issue(session), () => exchange(last)] as const;
      const { both } = await db.transaction(async (tx) => {
        await tx.execute(sql`set local idle_in_transaction_session_timeout = 0`);
        await tx.execute(sql`select from auth.challenge_sessions where session_hash = ${session} for update`);
        const order = first === "the exchange" ? [1, 0] : [0, 1];
        const started = new Map<number, Promise<unknown>>();
        for (const [index, place] of order.entries()) {
          started.set(place, calls[place]?.() ?? expect.fail());
          await waitFor(async () => expect(await rows(db, waiting)).toHaveLength(index + 1));
        }
        return { both: Promise.all([started.get(0), started.get(1)]) };
      });
      const [issued, exchanged] = await both;
      expect([issued, exchanged].filter((one) => one !== undefined)).toHaveLength(1);
      const good = typeof issued === "string" ? issued : last;
      const repeated = await exchange(good);
      expect(repeated).toEqual(exchanged ?? expect.objectContaining({ phone: "+12025550123" }));
    },
  );
});
