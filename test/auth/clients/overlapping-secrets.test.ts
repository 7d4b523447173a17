/** Secrets that a deployment replaces while it serves: for a while its processes have different ones. */
import { randomUUID } from "node:crypto";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { guessingRules } from "../../../src/auth/limits/guessing.ts";
import { type AuthApi, authApi, basic, newPhone } from "../../support/auth-api.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { createAuthStore } from "../../support/auth-store.ts";
import { startPushApart } from "../../support/push-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { guessesAt, oneByOne } from "../limits/guessing-fixture.ts";

const [oldSecret, newSecret] = ["the-old-secret-of-two", "the-new-secret-of-two"];
const [oldKey, newKey] = ["the-old-key-of-two", "the-new-key-of-two"];

describe.runIf(backends.includes("PostgreSQL"))("while secrets are replaced", () => {
  /** The first has the old ones alone, the second both, and the third the new ones alone. */
  let apis: AuthApi[];
  let id: string;
  let token: string;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    const settings = [
      { INTERNAL_CLIENT_SECRET: oldSecret, PLATFORM_SECURITY_API_KEY: oldKey },
      {
        INTERNAL_CLIENT_SECRET: JSON.stringify([oldSecret, newSecret]),
        PLATFORM_SECURITY_API_KEY: JSON.stringify([oldKey, newKey]),
      },
      { INTERNAL_CLIENT_SECRET: newSecret, PLATFORM_SECURITY_API_KEY: newKey },
    ];
    apis = await oneByOne(settings, async (changed) => {
      const server = await startAuthServer("PostgreSQL", { env: { ...store.env, ...changed } });
      cleanup.defer(() => server.stop());
      return authApi(server.base);
    });
    id = await newUser();
    token = (await apiOf(1).newPair(id)).access_token;
  });

  const apiOf = (place: number) => apis[place] ?? expect.fail("no such process");
  const asInternal = (secret: string) => ({ as: basic("internal", secret) });
  const { guess } = guessesAt(() => apiOf(0));
  const { guess: guessElsewhere } = guessesAt(() => apiOf(2));

  async function newUser(): Promise<string> {
    const json = { id: randomUUID(), phone: newPhone() };
    await apiOf(0).call("createIdentity", { ...asInternal(oldSecret), json });
    const password = { json: { password: "right horse" }, path: { id: json.id } };
    await apiOf(0).call("setIdentityPassword", { ...asInternal(oldSecret), ...password });
    return json.id;
  }

  test("a process that has two of the internal client takes each, and no other", async () => {
    const statusOf = async (place: number, secret: string) =>
      (await apiOf(place).call("getIdentity", { ...asInternal(secret), path: { id } })).status;
    const secrets = [oldSecret, newSecret, JSON.stringify([oldSecret, newSecret]), `${oldSecret}x`];
    const statuses = await oneByOne([0, 1, 2], (place) => oneByOne(secrets, (one) => statusOf(place, one)));
    expect(statuses).toEqual([
      [200, 401, 401, 401],
      [200, 200, 401, 401],
      [401, 200, 401, 401],
    ]);
  });

  test("a process that has two API keys takes each, and no other", async () => {
    const statusOf = async (key: string) =>
      (await apiOf(1).call("introspectToken", { headers: { "x-api-key": key }, form: { token } })).status;
    expect(await oneByOne([oldKey, newKey, `${newKey}x`], statusOf)).toEqual([200, 200, 401]);
  });

  test("guesses count together at processes with different secrets, and are unlocked for all of them", async () => {
    const { failures } = guessingRules.password;
    const user = await newUser();
    await oneByOne(Array(failures - 1), () => guess(user));
    expect([(await guessElsewhere(user)).status, (await guessElsewhere(user)).status]).toEqual([400, 429]);
    const unlocked = await apiOf(2).call("clearIdentityAttempts", {
      ...asInternal(newSecret),
      path: { id: user },
    });
    expect([unlocked.status, (await guess(user, "right horse")).status]).toEqual([204, 200]);
  });
});

test("push asks with the first of its two keys", async () => {
  const auth = await startAuthServer("PGlite", { env: { PLATFORM_SECURITY_API_KEY: newKey } });
  onTestFinished(() => auth.stop());
  const env = { PLATFORM_SECURITY_API_KEY: JSON.stringify([newKey, oldKey]), TOKEN_AUDIENCE: "push" };
  const push = await startPushApart("PGlite", auth, { env });
  onTestFinished(() => push.stop());
  const headers = { authorization: `Bearer ${await push.userToken()}` };
  const summary = await fetch(`${push.base}/v1/pushprovider/notifications-summary`, { headers });
  expect(summary.status).toBe(200);
});
