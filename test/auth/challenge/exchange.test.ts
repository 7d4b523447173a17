/** The exchange of an authorization code: once, repeated for a lost response, and refused for whatever has changed. */
import { beforeAll, describe, expect, test } from "vitest";
import { type Answer, internal, newPhone, type TokenPair } from "../../support/auth-api.ts";
import { type AuthFleet, deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { dump } from "../../support/auth-store.ts";
import { appClient, newKeyPair, type PublicApp, publicApp } from "../../support/public-app.ts";
import { generousLimits, newMobilePhone, sentCode } from "../../support/sent-code.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

describe.each(deployments)("the exchange of a code: $name", (deployment) => {
  let fleet: AuthFleet;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    fleet = await startFleet(deployment, {
      env: { ...withClients(appClient("app"), appClient("other"), appClient("leaving")), ...generousLimits },
    });
    cleanup.defer(() => fleet.stop());
  });

  async function newApp(clientId = "app", keys?: PublicApp["keys"]): Promise<PublicApp> {
    const [{ settings }] = fleet.servers;
    return publicApp({
      ...{ clientId, issuer: settings.issuer, keys: keys ?? (await newKeyPair()) },
      next: () => fleet.next(),
      otp: (phone) => sentCode(fleet.servers, phone),
    });
  }
  const pairOf = ({ status, text, body }: Answer): TokenPair => {
    expect(status, text).toBe(200);
    return body as TokenPair;
  };
  const expectRefused = ({ status, body }: Answer) =>
    expect({ status, body }).toMatchObject({ status: 400, body: { error: "invalid_grant" } });
  const isActive = async ({ access_token }: TokenPair) =>
    (await fleet.next().introspect(access_token)).active;

  test("200 parallel uses of one code make one authorization and one refresh token", async () => {
    const { id, phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
    const app = await newApp();
    const code = await app.code(phone);
    const answers = await Promise.all(Array.from({ length: 200 }, () => app.exchange(code)));
    expect(new Set(answers.map((answer) => pairOf(answer).refresh_token)).size).toBe(1);
    await fleet.delivered(id, ["auth.identity.created.v1", "auth.authorization.granted.v1"]);
  });

  test("a lost response is repeated: that to the right code, and that to the exchange; no code is sent for it", async () => {
    const { phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
    const app = await newApp();
    const auth_session = await app.session(phone);
    const otp = await sentCode(fleet.servers, phone);
    const [lost, again] = [
      await app.challenge({ auth_session, otp }),
      await app.challenge({ client_id: "app", auth_session, otp }),
    ].map(({ body }) => String(Object(body).authorization_code));
    expectRefused(await app.exchange(lost ?? ""));
    const pair = pairOf(await app.exchange(again ?? ""));
    const repeated = pairOf(await app.exchange(again ?? ""));
    expect(repeated.refresh_token).toBe(pair.refresh_token);
    expect(await isActive(repeated)).toBe(true);
    const afterwards = await app.challenge({ auth_session, otp });
    expect(afterwards).toMatchObject({ status: 400, body: { error: "invalid_session" } });
    // Once the refresh token was used, the code is a used one, which ends nothing.
    const next = pairOf(await app.refresh(pair.refresh_token));
    expectRefused(await app.exchange(again ?? ""));
    expect(await isActive(next)).toBe(true);
  });

  test("another key, client or verifier is refused, and its owner exchanges it all the same", async () => {
    const { phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
    const app = await newApp();
    const code = await app.code(phone);
    const form = { grant_type: "authorization_code", code, code_verifier: app.codeVerifier };
    const thief = await newApp();
    expectRefused(await thief.token(form));
    expectRefused(await app.token({ ...form, code_verifier: thief.codeVerifier }));
    expectRefused(await (await newApp("other", app.keys)).token(form));
    // The last character has four bits that count: these two differ in them.
    const other = code.slice(0, -1) + (code.endsWith("A") ? "E" : "A");
    expectRefused(await app.token({ ...form, code: other }));
    const missing = await app.token({ ...form, code_verifier: "" });
    expect(missing).toMatchObject({ status: 400, body: { error: "invalid_request" } });
    pairOf(await app.exchange(code));
  });

  test("another's session is an invalid one, and its owner's goes on", async () => {
    const { phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
    const app = await newApp();
    const auth_session = await app.session(phone);
    const otp = await sentCode(fleet.servers, phone);
    const strangers = [
      await (await newApp()).challenge({ auth_session, otp }),
      await (await newApp("other", app.keys)).challenge({ client_id: "other", auth_session, otp }),
    ];
    for (const stranger of strangers) {
      expect(stranger).toMatchObject({ status: 400, body: { error: "invalid_session" } });
    }
    expect((await app.challenge({ auth_session, otp })).status).toBe(200);
  });

  test.each<[string, (id: string) => Promise<Answer>]>([
    [
      "the phone was changed",
      (id) =>
        fleet.next().call("updateIdentity", { as: internal, path: { id }, json: { phone: newPhone() } }),
    ],
    [
      "all sessions were ended by a new password",
      (id) =>
        fleet.next().call("setIdentityPassword", {
          ...{ as: internal, path: { id }, json: { password: "correct horse battery staple" } },
        }),
    ],
    [
      "all sessions were ended by an operator",
      (id) => fleet.next().call("endAllAuthorizations", { as: internal, path: { id } }),
    ],
    ["the identity was deleted", (id) => fleet.next().call("deleteIdentity", { as: internal, path: { id } })],
  ])("where %s between code and exchange, the code is invalid", async (_what, change) => {
    const { id, phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
    const app = await newApp();
    const code = await app.code(phone);
    expect((await change(id)).status).toBe(204);
    expectRefused(await app.exchange(code));
    expectRefused(await app.exchange(code));
  });

  test.runIf(deployment.backend === "PostgreSQL")(
    "a client that was disabled meanwhile gets no code, no message and no pair",
    async () => {
      const { phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
      const app = await newApp("leaving");
      const auth_session = await app.session(phone);
      const otp = await sentCode(fleet.servers, phone);
      const { body } = await app.challenge({ auth_session, otp });
      await fleet.store.read((query) =>
        query("update auth.clients set disabled_at = now() where client_id = 'leaving'"),
      );
      const exchange = () => app.exchange(Object(body).authorization_code);
      // For a second a process may take the client for an enabled one; the statement that grants does not.
      expect((await exchange()).status).toBe(400);
      await expect.poll(async () => Object((await exchange()).body).error).toBe("invalid_client");
      const errorOf = async (form: Record<string, string>) =>
        Object((await app.challenge({ auth_session, ...form })).body).error;
      for (const form of [{}, { otp }]) await expect.poll(() => errorOf(form)).toBe("invalid_client");
    },
  );

  test.runIf(deployment.backend === "PostgreSQL")(
    "a code expires after a minute, and so does its repeat",
    async () => {
      const { phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
      const shift = (table: string, column: string) =>
        fleet.store.read((query) =>
          query(`update auth.${table} set ${column} = ${column} - interval '61 seconds'`),
        );
      const app = await newApp();
      const unused = await app.code(phone);
      await shift("authorization_codes", "expires_at");
      expectRefused(await app.exchange(unused));
      const code = await app.code(phone);
      pairOf(await app.exchange(code));
      await shift("authorization_codes", "expires_at");
      pairOf(await app.exchange(code));
      await shift("challenge_sessions", "exchanged_at");
      expectRefused(await app.exchange(code));
    },
  );

  test.runIf(deployment.backend === "PostgreSQL")("a dump has no session, code or token", async () => {
    const { phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
    const app = await newApp();
    const auth_session = await app.session(phone);
    const otp = await sentCode(fleet.servers, phone);
    const { body } = await app.challenge({ auth_session, otp });
    const code = String(Object(body).authorization_code);
    const pair = pairOf(await app.exchange(code));
    const next = pairOf(await app.refresh(pair.refresh_token));
    const rows = await fleet.store.read(dump);
    const secrets = [
      auth_session,
      code,
      app.codeVerifier,
      pair.refresh_token,
      next.refresh_token,
      next.access_token,
    ];
    for (const secret of secrets) {
      const spellings = [secret, secret.replace(/^gp._/, "")];
      const bytes = spellings.map((one) => Buffer.from(one, "base64url").toString("hex"));
      for (const text of [...spellings, ...bytes]) expect(rows).not.toContain(text);
    }
    // Each secret half of a token by itself.
    for (const token of [pair.refresh_token, next.refresh_token]) {
      const hex = Buffer.from(token.slice(4), "base64url").toString("hex");
      for (const half of [hex.slice(32, 96), hex.slice(96, 160)]) expect(rows).not.toContain(half);
    }
  });
});
