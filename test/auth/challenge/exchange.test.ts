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
      env: {
        ...withClients(
          ...["app", "other", "leaving"].map((id) => appClient(id)),
          appClient("joining", { clientSettings: { signUp: true } }),
        ),
        ...generousLimits,
      },
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

  test("of the last code and one that is exchanged while a new one is made, one works and gets a pair", async () => {
    const races = Array.from({ length: 8 }, async () => {
      const { phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
      const app = await newApp();
      const request = await app.withCode(phone);
      const codeOf = async () => {
        const DPoP = (await app.beginning(phone)).headers?.["DPoP"] ?? "";
        return fleet.next().call("challengeAuthorization", { ...request, headers: { DPoP } });
      };
      const last: string = Object((await codeOf()).body).authorization_code;
      const [issued, exchanged] = await Promise.all([codeOf(), app.exchange(last)]);
      if (exchanged.status === 200) {
        // Made before the exchange, a new code would have voided the last; after it none is made.
        expect(issued.body).toMatchObject({ error: "invalid_session" });
        expect(pairOf(await app.exchange(last)).refresh_token).toBe(pairOf(exchanged).refresh_token);
      } else {
        expectRefused(exchanged);
        pairOf(await app.exchange(Object(issued.body).authorization_code));
      }
    });
    await Promise.all(races);
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

  test.each<[string, (id: string) => Promise<Answer>, 200 | 400]>([
    ["is deleted", (id) => fleet.next().call("deleteIdentity", { as: internal, path: { id } }), 400],
    [
      "gets another phone",
      (id) =>
        fleet
          .next()
          .call("updateIdentity", { as: internal, path: { id }, json: { phone: newMobilePhone() } }),
      200,
    ],
  ])(
    "a repeated exchange makes no second identity, where the one that signed up %s",
    async (_what, change, status) => {
      const phone = newMobilePhone();
      const app = await newApp("joining");
      const code = await app.code(phone);
      const { sub } = await fleet.next().introspect(pairOf(await app.exchange(code)).access_token);
      expect((await change(String(sub))).status).toBe(204);
      expect((await app.exchange(code)).status).toBe(status);
      const query = `?phone=${encodeURIComponent(phone)}`;
      const found = await fleet.next().call("findIdentityByPhone", { as: internal, query });
      expect(found.status).toBe(404);
    },
  );

  test("who got the phone after the beginning is signed in, and not once all sessions were ended", async () => {
    const phones = [newMobilePhone(), newMobilePhone()];
    const apps = await Promise.all(phones.map(() => newApp("joining")));
    const codes: string[] = [];
    for (const [index, phone] of phones.entries()) codes.push((await apps[index]?.code(phone)) ?? "");
    const [kept, ended] = await Promise.all(phones.map((phone) => fleet.next().newIdentity({ phone })));
    await fleet.next().call("endAllAuthorizations", { as: internal, path: { id: ended?.id ?? "" } });
    const [pair, refused] = await Promise.all(apps.map((app, index) => app.exchange(codes[index] ?? "")));
    const { sub } = await fleet.next().introspect(pairOf(pair ?? expect.fail()).access_token);
    expect(sub).toBe(kept?.id);
    expectRefused(refused ?? expect.fail());
  });

  test.runIf(deployment.backend === "PostgreSQL")(
    "sessions that were ended long before the beginning are no obstacle, though the janitor removes that meanwhile",
    async () => {
      const { id, phone } = await fleet.next().newIdentity({ phone: newMobilePhone() });
      await fleet.next().call("endAllAuthorizations", { as: internal, path: { id } });
      const app = await newApp();
      const code = await app.code(phone);
      await fleet.store.read((query) =>
        query(`delete from auth.identity_endings where identity_id = '${id}'`),
      );
      pairOf(await app.exchange(code));
    },
  );

  test.runIf(deployment.backend === "PostgreSQL")(
    "a client that was disabled meanwhile gets no code, no message and no pair, and then nothing begins",
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
      for (const form of [{ auth_session }, { auth_session, otp }]) {
        expect((await app.challenge(form)).body).toMatchObject({ error: "invalid_session" });
      }
      await expect
        .poll(async () => (await app.begin(phone)).body)
        .toMatchObject({
          error: "invalid_client",
          error_description: expect.stringContaining("No enabled client of the method none"),
        });
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
      await shift("challenge_sessions", "code_expires_at");
      expectRefused(await app.exchange(unused));
      const code = await app.code(phone);
      pairOf(await app.exchange(code));
      await shift("challenge_sessions", "code_expires_at");
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
