/** The limits on guessing, with small rules and a real server: what counts, what is taken back, and what is stored. */
import { createHash } from "node:crypto";
import { sql } from "drizzle-orm";
import { beforeAll, describe, expect, test, vi } from "vitest";
import { type AttemptRule, createAttemptLimit } from "../../../src/auth/limits/attempts.ts";
import { authMigrations } from "../../../src/auth/service.ts";
import type { OpenDatabase } from "../../../src/platform/database/database.ts";
import { type Answer, type AuthApi, authApi, basic, internal, mobileApp } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { rows } from "../../support/rows.ts";
import { backends } from "../../support/servers.ts";
import { createServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const failures = 6;
vi.mock(import("../../../src/auth/limits/attempts.ts"), async (original) => {
  const real = await original();
  const small: AttemptRule = { ...real.attemptRules.client, failures: 6 };
  return { ...real, attemptRules: Object.assign({}, real.attemptRules, { client: small }) };
});

function times<T>(count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => work(index)));
}
const statuses = (responses: readonly Answer[]) => responses.map(({ status }) => status).sort();
const repeat = (count: number, status: number) => Array.from({ length: count }, () => status);

describe.each(backends)("the limit of a client on %s", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  /** A client for one test: its count is separate from those of the others. */
  const names = ["earlier", "earliest", "outrunner", "right", "away"] as const;
  const as = (name: (typeof names)[number]) => basic(name, `${name}-secret`);
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const clients = names.map((name) => ({
      clientId: name,
      clientSecret: `${name}-secret`,
      grantTypes: ["password", "phone_otp"],
    }));
    // No verifier listens on this port: one-time codes cannot be checked.
    const env = { ...withClients(...clients), OTP_VERIFIER_URL: "http://127.0.0.1:1" };
    server = await startAuthServer(backend, { env });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const guess = (username: string, password: string, client: string) =>
    api.token({ grant_type: "password", username, password }, client);

  /** Identities with the password `right horse`. */
  function people(count: number): Promise<string[]> {
    return times(count, async () => {
      const { id } = await api.newIdentity();
      const json = { password: "right horse" };
      await api.call("setIdentityPassword", { as: internal, path: { id }, json });
      return id;
    });
  }
  /** Exactly the failures of the rule are left to the client. */
  async function expectUnused(client: string): Promise<void> {
    const [id = ""] = await people(1);
    const responses: Answer[] = [];
    for (let n = 0; n <= failures; n += 1) responses.push(await guess(id, "wrong", client));
    expect(responses.map(({ status }) => status)).toEqual([...repeat(failures, 400), 429]);
  }

  test("is not outrun by parallel guesses; then accounts without a failure get in, and no others", async () => {
    const ids = await people(2 * failures);
    const [untouched = ""] = await people(1);
    // Each account has a failure of its own, at another client.
    const before = await Promise.all(
      ids.map((id, index) => guess(id, "wrong", as(index < failures ? "earlier" : "earliest"))),
    );
    expect(statuses(before)).toEqual(repeat(2 * failures, 400));
    const client = as("outrunner");
    const responses = await Promise.all(ids.map((id) => guess(id, "wrong", client)));
    expect(statuses(responses)).toEqual([...repeat(failures, 400), ...repeat(failures, 429)]);

    expect((await guess(untouched, "right horse", client)).status).toBe(200);
    const [failed = ""] = ids;
    const refused: Answer[] = [];
    while (refused.length < 20) refused.push(await guess(failed, "right horse", client));
    expect(statuses(refused)).toEqual(repeat(20, 429));
    expect(refused[0]?.body).toMatchObject({ error: "slow_down" });
    expect(Number(refused[0]?.headers.get("retry-after"))).toBeGreaterThan(0);
    // An attempt that is refused for the client does not count against the account.
    expect((await guess(failed, "right horse", mobileApp)).status).toBe(200);
  });

  test("counts no success", async () => {
    const [id = ""] = await people(1);
    for (let n = 0; n < 2 * failures; n += 1) {
      expect((await guess(id, "right horse", as("right"))).status).toBe(200);
    }
    await expectUnused(as("right"));
  });

  test("counts nothing that could not be judged", async () => {
    const { phone } = await api.newIdentity();
    for (let n = 0; n < 2 * failures; n += 1) {
      const form = { grant_type: "phone_otp", phone, password: "000000" };
      expect((await api.token(form, as("away"))).status).toBe(503);
    }
    await expectUnused(as("away"));
  });
});

describe.each(backends)("a limit on %s", (backend) => {
  let own: ServiceDatabase;
  let database: OpenDatabase;
  const phone = "+12025550123";
  const rule = { name: "code", failures: 3, windowSeconds: 300 };
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    own = await createServiceDatabase(backend, authMigrations);
    cleanup.defer(() => own.drop());
    database = await own.open();
    await database.migrate();
  });

  const keys = async () =>
    (await rows<{ key: string }>(database.db, sql`select key from auth.attempts`)).map(({ key }) => key);

  test("says how many count, this one among them, and takes back and forgets", async () => {
    const limit = createAttemptLimit(database.db, "a secret of the settings", rule);
    expect(await limit.begin("somebody")).toBe(1);
    expect(await limit.begin("somebody")).toBe(2);
    await limit.withdraw("somebody");
    expect(await limit.begin("somebody")).toBe(2);
    expect(await limit.begin("somebody")).toBe(3);
    await expect(limit.begin("somebody")).rejects.toMatchObject({ kind: { status: 429 } });
    await limit.succeed("somebody");
    expect(await limit.begin("somebody")).toBe(1);
  });

  test("keeps keys that disclose no account without the secret", async () => {
    await database.db.execute(sql`delete from auth.attempts`);
    await createAttemptLimit(database.db, "a secret of the settings", rule).begin(phone);
    const [key = ""] = await keys();
    const guesses = [phone, phone.slice(1), `${rule.name}:${phone}`, `${rule.name}${phone}`];
    for (const text of guesses) {
      expect(key).not.toContain(text);
      const digest = createHash("sha256").update(text).digest();
      for (const form of ["hex", "base64", "base64url"] as const) {
        expect(key).not.toContain(digest.toString(form));
      }
    }
    await createAttemptLimit(database.db, "a secret of the settings", rule).begin(phone);
    expect(await keys()).toEqual([key]);
    await createAttemptLimit(database.db, "another secret", rule).begin(phone);
    expect(await keys()).toHaveLength(2);
  });
});
