/** What becomes of authorizations that are created at the same time where one of them has to wait. */
import { createHash, randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { clients } from "../../../src/auth/schema.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import { createCreateAuthorization } from "../../../src/auth/tokens/create-authorization.ts";
import { newRefreshToken } from "../../../src/auth/tokens/refresh-token.ts";
import { sqlState } from "../../../src/platform/base/database-errors.ts";
import { uuidv7 } from "../../../src/platform/crypto/random.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { backends } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.runIf(backends.includes("PostgreSQL"))("authorizations that are created at the same time", () => {
  let db: Database;
  let client: typeof clients.$inferSelect;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const own = await createMigratedServiceDatabase("PostgreSQL", authMigrations);
    cleanup.defer(() => own.drop());
    const database = await own.open({ poolSize: 8 });
    cleanup.defer(() => database.close());
    ({ db } = database);
    const added = await db
      .insert(clients)
      .values({
        clientId: "app",
        clientName: "App",
        secretHashes: [],
        authenticationMethods: [],
        grantTypes: ["phone_otp_token"],
        scopes: [],
        clientSettings: { audiences: [], mayIntrospect: false },
        tokenSettings: { accessTokenSeconds: 900, refreshTokenSeconds: 3600, refreshGraceSeconds: 30 },
        registeredAt: new Date(),
      })
      .returning();
    client = added[0] ?? expect.fail("no client");
    await db.execute(sql`
      insert into auth.identities (id, phone, created_at, updated_at)
      select 'user-' || n, '+1' || (2000000000 + n), now(), now() from generate_series(0, 19) n`);
  });

  test("are created though another transaction is redeeming the proof of one", async () => {
    const hash = createHash("sha256").update(randomUUID()).digest();
    const expiresAt = new Date(Date.now() + 60_000);
    const createAuthorization = createCreateAuthorization(db);
    const create = (identityId: string, isProven: boolean) =>
      createAuthorization({
        client,
        grantType: "phone_otp_token",
        subject: { identityId, ...(isProven && { otpProof: { hash, expiresAt } }) },
        scopes: [],
        description: { deviceName: undefined, metadata: undefined },
        refreshToken: newRefreshToken(uuidv7(Date.now())),
      });
    const outcomes = await db.transaction(async (tx) => {
      await tx.execute(sql`set local idle_in_transaction_session_timeout = 0`);
      await tx.execute(sql`
        insert into auth.redeemed_otp_proofs (proof_hash, expires_at)
        values (decode(${hash.toString("hex")}, 'hex'), now() + interval '1 minute')`);
      return await Promise.allSettled(Array.from({ length: 20 }, (_, n) => create(`user-${n}`, n === 7)));
    });
    // The value, or the state of the error.
    const results = outcomes.map((one) => (one.status === "fulfilled" ? one.value : sqlState(one.reason)));
    expect(results).toEqual(results.map((_, n) => (n === 7 ? "55P03" : true)));
  });
});
