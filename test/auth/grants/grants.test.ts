/**
 * The token operation: what holds for each of the five grants, and the grants `password`, `auth` and
 * `refresh_token`. Those that check a phone are in grants-phone.test.ts, races in grants-races.test.ts.
 */
import { createHash } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { grantTypes } from "../../../src/auth/client-settings.ts";
import {
  type Answer,
  type AuthApi,
  authApi,
  backoffice,
  basic,
  internal,
  mobileApp,
  newPhone,
  type TokenPair,
} from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { otpVerifier } from "../../support/otp.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const password = "correct horse battery staple";
const odd = basic("odd", "odd-secret");
/** A client whose scopes hold every character that RFC 6749 permits, and no grants but one. */
const oddScopes = ["a,b", "{c}", "NULL", "d'e", "$1", "f[0]", "null,null", "(g)"];
const clients = withClients({
  clientId: "odd",
  clientSecret: "odd-secret",
  grantTypes: ["auth", "refresh_token"],
  scopes: oddScopes,
  clientSettings: { audiences: ["one", "two"] },
  tokenSettings: { accessTokenSeconds: 60, refreshTokenSeconds: 120 },
});

const badRequest = (error: string) =>
  expect.objectContaining({ error, error_description: expect.any(String) });
function expectRefused(response: Answer, error: string, status = 400): void {
  expect({ status: response.status, body: response.body }).toEqual({ status, body: badRequest(error) });
}
function pairOf({ status, text, body }: Answer): TokenPair {
  expect(status, text).toBe(200);
  return body as TokenPair;
}

describe.each(backends)("grants on %s", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  let otp: ReturnType<typeof otpVerifier>;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer(backend, { env: clients });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
    otp = otpVerifier(server.origin);
  });

  async function newUser(fields: { email?: string; phone?: string } = {}) {
    const user = await api.newIdentity(fields);
    await api.call("setIdentityPassword", { as: internal, path: { id: user.id }, json: { password } });
    return user;
  }

  /** A request that each grant accepts, made anew. */
  const valid: Record<(typeof grantTypes)[number], () => Promise<Record<string, string>>> = {
    password: async () => ({ username: (await newUser()).id, password }),
    refresh_token: async () => ({
      refresh_token: (await api.newPair((await api.newIdentity()).id)).refresh_token,
    }),
    phone_otp: async () => {
      const { phone } = await api.newIdentity();
      return { phone, password: await otp.send(phone) };
    },
    auth: async () => ({ auth_id: (await api.newIdentity()).id }),
    phone_otp_token: async () => {
      const { phone } = await api.newIdentity();
      return { phone, otp_verification_token: await otp.prove(phone) };
    },
  };

  describe.each(grantTypes)("%s", (grant_type) => {
    test("issues a pair whose access token is active and whose refresh token works", async () => {
      const pair = pairOf(await api.token({ grant_type, ...(await valid[grant_type]()) }));
      expect(pair).toEqual({
        access_token: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/),
        refresh_token: expect.stringMatching(/^gpr_[\w-]{128}$/),
        token_type: "Bearer",
        expires_in: 900,
        refresh_expires_in: 2_592_000,
        scope: "profile orders",
      });
      expect(await api.introspect(pair.access_token)).toMatchObject({
        active: true,
        clientId: "backend",
        scope: "profile orders",
      });
      pairOf(await api.refresh(pair.refresh_token));
    });

    test("takes a JSON body as well as a form, and ignores what it does not know", async () => {
      const json = {
        grant_type,
        ...(await valid[grant_type]()),
        audience: "x",
        nested: { a: [1] },
        scope: "",
      };
      pairOf(await api.call("generateTokens", { as: mobileApp, json }));
    });

    test("names every required parameter that is missing or empty", async () => {
      const form = await valid[grant_type]();
      const required = Object.keys(form).filter(
        (name) => !(grant_type === "phone_otp" && name === "password"),
      );
      for (const name of required) {
        const { [name]: _, ...rest } = form;
        for (const incomplete of [rest, { ...rest, [name]: "" }]) {
          const response = await api.token({ grant_type, ...incomplete });
          expectRefused(response, "invalid_request");
          expect(response.text).toContain(name);
        }
      }
      pairOf(await api.token({ grant_type, ...form }));
    });

    test("is refused to a client that does not list it, and to the internal client", async () => {
      const form = await valid[grant_type]();
      if (grant_type !== "password" && grant_type !== "refresh_token") {
        expectRefused(await api.token({ grant_type, ...form }, backoffice), "unauthorized_client");
      }
      expectRefused(await api.token({ grant_type, ...form }, internal), "unauthorized_client");
      pairOf(await api.token({ grant_type, ...form }));
    });

    test("is refused without the client's credentials, and nothing is used up", async () => {
      const form = await valid[grant_type]();
      const call = (headers: Record<string, string>) =>
        api.call("generateTokens", { form: { grant_type, ...form }, headers });
      const wrong = ["", "Basic", "Basic !", basic("backend", "wrong"), basic("nobody", "x"), "Bearer x"];
      for (const authorization of wrong) expectRefused(await call({ authorization }), "invalid_client");
      expectRefused(await call({}), "invalid_client");
      pairOf(await api.token({ grant_type, ...form }));
    });

    test("issues no wider scope than was permitted, and a refused scope uses nothing up", async () => {
      const form = await valid[grant_type]();
      for (const scope of ["admin", "profile admin", 'profile "', "profile\torders", "PROFILE"]) {
        expectRefused(await api.token({ grant_type, ...form, scope }), "invalid_scope");
      }
      const pair = pairOf(await api.token({ grant_type, ...form, scope: "orders orders" }));
      expect(await api.introspect(pair.access_token)).toMatchObject({ scope: "orders" });
    });

    test("does not take one parameter twice, nor the client's secret in the body", async () => {
      const form = new URLSearchParams({ grant_type, ...(await valid[grant_type]()) }).toString();
      const [name] = form.split("&")[1]?.split("=") ?? [];
      for (const twice of [`${form}&grant_type=${grant_type}`, `${form}&${name}=x`, `${form}&${name}=`]) {
        expectRefused(await api.call("generateTokens", { as: mobileApp, form: twice }), "invalid_request");
      }
      for (const second of ["client_secret=backend-dev-secret", "client_assertion=x"]) {
        const response = await api.call("generateTokens", { as: mobileApp, form: `${form}&${second}` });
        expectRefused(response, "invalid_request");
      }
      pairOf(await api.call("generateTokens", { as: mobileApp, form }));
    });

    test("refuses what is wrong in one way and with one text, whatever is wrong", async () => {
      const nobody = newPhone();
      const wrong: Record<string, Record<string, string>[]> = {
        password: [
          { username: (await newUser()).id, password: "wrong password" },
          { username: (await api.newIdentity()).id, password },
          { username: "nobody", password },
          { username: nobody, password },
          { username: "nobody@example.com", password },
          { username: "\u{1f511}", password },
        ],
        refresh_token: [{ refresh_token: "gpr_x" }, { refresh_token: `gpr_${"A".repeat(128)}` }],
        phone_otp: [
          { phone: (await api.newIdentity()).phone, password: "000000" },
          { phone: (await api.newIdentity()).phone },
          { phone: nobody, password: await otp.send(nobody) },
          { phone: "12345", password: "1" },
        ],
        auth: [{ auth_id: "nobody" }, { auth_id: "no body" }, { auth_id: "\u{1f511}" }],
        phone_otp_token: [
          { phone: nobody, otp_verification_token: await otp.prove(nobody) },
          { phone: (await api.newIdentity()).phone, otp_verification_token: await otp.prove(nobody) },
          { phone: nobody, otp_verification_token: "x" },
        ],
      };
      const texts = new Set<string>();
      for (const form of wrong[grant_type] ?? []) {
        const response = await api.token({ grant_type, ...form });
        expectRefused(response, "invalid_grant");
        texts.add(response.text);
      }
      expect([...texts]).toHaveLength(1);
    });
  });

  test("an unknown grant type is unsupported_grant_type, a missing one invalid_request", async () => {
    for (const grant_type of ["client_credentials", "authorization_code", "AUTH", "auth ", "__proto__"]) {
      expectRefused(await api.token({ grant_type, auth_id: "x" }), "unsupported_grant_type");
    }
    expectRefused(await api.token({ auth_id: "x" }), "invalid_request");
    expectRefused(await api.token({ grant_type: "", auth_id: "x" }), "invalid_request");
  });

  test("password: works by phone in any spelling, by e-mail in any case, and by id", async () => {
    const email = `Ada.${createHash("sha256").update(newPhone()).digest("hex").slice(0, 12)}@Example.com`;
    const { id, phone } = await newUser({ email });
    const spaced = phone.replace(/^(\+1)(\d{3})(\d{3})/, "$1 ($2) $3-");
    for (const username of [id, phone, spaced, email, email.toLowerCase(), email.toUpperCase()]) {
      const { access_token } = pairOf(await api.token({ grant_type: "password", username, password }));
      expect(await api.introspect(access_token)).toMatchObject({ sub: id, username: id });
    }
    expectRefused(
      await api.token({ grant_type: "password", username: id.toUpperCase(), password }),
      "invalid_grant",
    );
  });

  test("password: the same characters typed in another Unicode form are the same password", async () => {
    const { id } = await api.newIdentity();
    const json = { password: "Grüße-ﬁnal-①" };
    await api.call("setIdentityPassword", { as: internal, path: { id }, json });
    for (const form of ["NFC", "NFD", "NFKC", "NFKD"]) {
      pairOf(
        await api.token({ grant_type: "password", username: id, password: json.password.normalize(form) }),
      );
    }
  });

  test("password: a password that was changed or removed no longer works", async () => {
    const { id } = await newUser();
    const request = { grant_type: "password", username: id, password };
    const { access_token } = pairOf(await api.token(request, backoffice));
    await api.call("setIdentityPassword", { as: internal, path: { id }, json: { password: "another one" } });
    expectRefused(await api.token(request), "invalid_grant");
    expect(await api.introspect(access_token)).toEqual({ active: false });
    pairOf(await api.token({ ...request, password: "another one" }));
    await api.call("removeIdentityPassword", { as: internal, path: { id } });
    expectRefused(await api.token({ ...request, password: "another one" }), "invalid_grant");
  });

  test("auth: no longer works once the identity is deleted, nor does its refresh token", async () => {
    const { id } = await api.newIdentity();
    const pair = await api.newPair(id);
    await api.call("deleteIdentity", { as: internal, path: { id } });
    expectRefused(await api.token({ grant_type: "auth", auth_id: id }), "invalid_grant");
    expectRefused(await api.refresh(pair.refresh_token), "invalid_grant");
    expect(await api.introspect(pair.access_token)).toEqual({ active: false });
  });

  test("refresh_token: never widens what the grant was given, and may narrow it for one access token", async () => {
    const auth_id = (await api.newIdentity()).id;
    const first = pairOf(await api.token({ grant_type: "auth", auth_id, scope: "profile" }));
    const refresh = (token: string, scope: string) =>
      api.token({ grant_type: "refresh_token", refresh_token: token, scope });
    for (const scope of ["orders", "profile orders"]) {
      expectRefused(await refresh(first.refresh_token, scope), "invalid_scope");
    }
    const second = pairOf(await refresh(first.refresh_token, "profile"));
    expect(await api.introspect(second.access_token)).toMatchObject({ scope: "profile" });

    const wide = pairOf(await api.token({ grant_type: "auth", auth_id }));
    const narrow = pairOf(await refresh(wide.refresh_token, "orders"));
    expect(narrow.scope).toBe("orders");
    expect(await api.introspect(narrow.access_token)).toMatchObject({ scope: "orders" });
    const again = pairOf(await api.refresh(narrow.refresh_token));
    expect(await api.introspect(again.access_token)).toMatchObject({ scope: "profile orders" });
  });

  test("scopes of any characters that are permitted come back as they are, and lifetimes are the client's", async () => {
    const auth_id = (await api.newIdentity()).id;
    const pair = pairOf(await api.token({ grant_type: "auth", auth_id }, odd));
    expect(pair).toMatchObject({ expires_in: 60, refresh_expires_in: 120 });
    const refreshed = pairOf(await api.refresh(pair.refresh_token, odd));
    for (const { access_token } of [pair, refreshed]) {
      const {
        iat = 0,
        exp,
        nbf,
        aud,
        scope,
      } = { iat: 0, exp: 0, nbf: 0, aud: [], scope: "", ...(await api.introspect(access_token)) };
      expect({ exp: exp - iat, nbf: nbf - iat, aud, scope }).toEqual({
        exp: 60,
        nbf: 0,
        aud: ["odd", "one", "two"],
        scope: oddScopes.join(" "),
      });
    }
  });
});
