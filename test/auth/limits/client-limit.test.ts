/** The limit of a client over all accounts, with a small rule and a real server. */
import { beforeAll, describe, expect, test } from "vitest";
import { guessingRules } from "../../../src/auth/limits/guessing.ts";
import {
  type Answer,
  type AuthApi,
  authApi,
  basic,
  internal,
  mobileApp,
  type TokenPair,
} from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { repeat, statuses, times, untilChecked } from "./guessing-fixture.ts";

const failures = 6;
const inProduction = guessingRules.client.failures;
const rule = suiteCleanup();
beforeAll(() => {
  Object.assign(guessingRules.client, { failures });
  rule.defer(() => void Object.assign(guessingRules.client, { failures: inProduction }));
});

const tokensIn = ({ status, text }: Answer): TokenPair => {
  expect(status, text).toBe(200);
  return JSON.parse(text);
};

describe.each(backends)("the limit of a client on %s", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  /** A client for one test: its count is separate from those of the others. */
  const names = ["earlier", "outrunner", "right", "storm", "away"] as const;
  const as = (name: (typeof names)[number]) => basic(name, `${name}-secret`);
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const clients = names.map((name) => ({
      clientId: name,
      clientSecret: `${name}-secret`,
      grantTypes: ["password", "phone_otp", "refresh_token"],
    }));
    // No verifier listens on this port: one-time codes cannot be checked.
    const env = { ...withClients(...clients), OTP_VERIFIER_URL: "http://127.0.0.1:1" };
    server = await startAuthServer(backend, { env });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  const guess = (username: string, password: string, client: string) =>
    untilChecked(() => api.token({ grant_type: "password", username, password }, client));

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

  test("is exceeded by nothing but what was being judged when it was reached", async () => {
    const ids = await people(2 * failures);
    const [existing = ""] = await people(1);
    const client = as("outrunner");
    const responses = await Promise.all(ids.map((id) => guess(id, "wrong", client)));
    const judged = responses.filter(({ status }) => status === 400);
    expect(judged.length).toBeGreaterThanOrEqual(failures);
    expect(responses.filter(({ status }) => status === 429)).toHaveLength(ids.length - judged.length);
    const invented = await Promise.all(ids.map((id) => guess(`${id}-invented`, "wrong", client)));
    expect(statuses(invented)).toEqual(repeat(2 * failures, 429));
    const refused = await guess(existing, "right horse", client);
    expect(refused).toMatchObject({ status: 429, body: { error: "slow_down" } });
    expect(Number(refused.headers.get("retry-after"))).toBeGreaterThan(0);
    // An attempt that is refused for the client does not count against the account, and other clients go on.
    expect((await guess(existing, "right horse", mobileApp)).status).toBe(200);
  });

  test("lets those in who have signed in with the client before, and not more often than others", async () => {
    const [signedIn = "", elsewhere = "", left = ""] = await people(3);
    const client = as("earlier");
    expect((await guess(signedIn, "right horse", client)).status).toBe(200);
    expect((await guess(elsewhere, "right horse", mobileApp)).status).toBe(200);
    const { refresh_token: token } = tokensIn(await guess(left, "right horse", client));
    expect((await api.call("revokeToken", { as: client, form: { token } })).status).toBe(200);
    const ids = await people(failures);
    await Promise.all(ids.map((id) => guess(id, "wrong", client)));

    expect((await guess(signedIn, "right horse", client)).status).toBe(200);
    for (const id of [elsewhere, left]) expect((await guess(id, "right horse", client)).status).toBe(429);
    const { failures: ofAccount } = guessingRules.password;
    const guesses: Answer[] = [];
    while (guesses.length <= ofAccount) guesses.push(await guess(signedIn, "wrong", client));
    expect(guesses.map(({ status }) => status)).toEqual([...repeat(ofAccount, 400), 429]);
  });

  test("counts no success", async () => {
    const [id = ""] = await people(1);
    for (let n = 0; n < 2 * failures; n += 1) {
      expect((await guess(id, "right horse", as("right"))).status).toBe(200);
    }
    await expectUnused(as("right"));
  });

  test("is not reached by right passwords, however many are checked at the same time", async () => {
    const ids = await people(2 * failures);
    const responses = await Promise.all(ids.map((id) => guess(id, "right horse", as("storm"))));
    expect(statuses(responses)).toEqual(repeat(2 * failures, 200));
    await expectUnused(as("storm"));
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
