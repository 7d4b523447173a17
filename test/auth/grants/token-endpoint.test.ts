/** The token operation before the grant is checked: the syntax of a request, the client, its permissions, scopes. */
import { decodeJwt } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import {
  type Answer,
  type AuthApi,
  authApi,
  backoffice,
  basic,
  type CallOptions,
  internal,
  mobileApp,
} from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const every = ["password", "refresh_token", "phone_otp", "auth", "phone_otp_token"];
const grantTypes = ["auth", "refresh_token"];
/** Clients whose ids and secrets need encoding, or look as if they were encoded. */
const encoded = { clientId: "app:50%+1", clientSecret: "a:b%20c+d &e=?/", grantTypes };
const plain = { clientId: "plain-app", clientSecret: "not+an%20encoded:secret", grantTypes };
const scoped = { clientId: "scoped", clientSecret: "scoped-secret", grantTypes, scopes: ["a", "b", "c"] };
const powerless = { clientId: "powerless", clientSecret: "powerless-secret", grantTypes: [] };
const asScoped = basic("scoped", "scoped-secret");

/** application/x-www-form-urlencoded, as RFC 6749 section 2.3.1 has it. */
function formEncode(text: string): string {
  return new URLSearchParams([["", text]]).toString().slice(1);
}

describe.each(backends)("the token operation on %s", (backend) => {
  let server: AuthServer;
  let api: AuthApi;
  let authId: string;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startAuthServer(backend, { env: withClients(encoded, plain, scoped, powerless) });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
    authId = (await api.newIdentity()).id;
  });

  const call = (options: CallOptions) => api.call("generateTokens", options);
  const form = () => ({ grant_type: "auth", auth_id: authId });
  const json = { "content-type": "application/json" };
  const urlEncoded = { "content-type": "application/x-www-form-urlencoded" };

  async function expectError(response: Promise<Answer>, error: string, description?: RegExp): Promise<void> {
    const { status, body, headers } = await response;
    expect({ status, body }).toMatchObject({ status: 400, body: { error } });
    if (description) expect(body).toHaveProperty("error_description", expect.stringMatching(description));
    expect(headers.get("cache-control")).toBe("no-store");
  }

  async function accessTokenOf(response: Promise<Answer>): Promise<string> {
    const { status, text, body } = await response;
    expect(status, text).toBe(200);
    return (body as { access_token: string }).access_token;
  }
  const scopeOf = async (response: Promise<Answer>) => decodeJwt(await accessTokenOf(response))["scope"];

  describe("the form of a request", () => {
    test.each(["GET", "HEAD", "PUT", "PATCH", "DELETE"])("%s is answered 405 with Allow", async (method) => {
      const query = `?grant_type=auth&auth_id=${authId}`;
      const response = await fetch(`${server.base}/oauth2/v1/tokens${query}`, {
        method,
        headers: { authorization: mobileApp },
      });
      const body = await response.text();
      if (method !== "HEAD") api.contract.check("generateTokens", response, body);
      expect(response.status).toBe(405);
      expect(response.headers.get("allow")).toBe("POST, OPTIONS");
      expect(response.headers.get("cache-control")).toBe("no-store");
    });

    test.each(["grant_type=auth", "auth_id=", "scope=&scope=", "x=1&x=2", "auth_id=x"])(
      "a repeated parameter is refused: %s",
      async (more) => {
        const text = `grant_type=auth&auth_id=${authId}&${more}`;
        await expectError(call({ as: mobileApp, form: text }), "invalid_request", /more than once/);
      },
    );

    test("a repeated member of a JSON body is refused too", async () => {
      const raw = `{"grant_type":"auth","auth_id":"${authId}","auth_id":"someone-else"}`;
      await expectError(call({ as: mobileApp, raw, headers: json }), "invalid_request", /more than once/);
    });

    test("an empty parameter counts as absent", async () => {
      const empty = { scope: "", refresh_token: "", client_secret: "" };
      expect(await scopeOf(call({ as: mobileApp, form: { ...form(), ...empty } }))).toBe("profile orders");
      expect(await scopeOf(call({ as: mobileApp, json: { ...form(), ...empty } }))).toBe("profile orders");
      for (const body of ["form", "json"]) {
        const missing = call({ as: mobileApp, [body]: { grant_type: "auth", auth_id: "" } });
        await expectError(missing, "invalid_request", /\/body\/auth_id is required/);
      }
      for (const body of [{ form: "grant_type=" }, { json: { ...form(), grant_type: "" } }]) {
        await expectError(call({ as: mobileApp, ...body }), "invalid_request", /\/body\/grant_type/);
      }
      await expectError(call({ as: mobileApp, raw: "", headers: urlEncoded }), "invalid_request");
    });

    test("null in a JSON body counts as absent, as a client's optional members are sent", async () => {
      const nulls = { username: null, password: null, refresh_token: null, scope: null, client_secret: null };
      expect(await scopeOf(call({ as: mobileApp, json: { ...form(), ...nulls } }))).toBe("profile orders");
      const missing = call({ as: mobileApp, json: { grant_type: "auth", auth_id: null } });
      await expectError(missing, "invalid_request", /\/body\/auth_id is required/);
      await expectError(call({ as: mobileApp, json: { grant_type: null } }), "invalid_request", /grant_type/);
    });

    test("an unknown parameter is ignored, whatever it is called", async () => {
      const unknown = { audience: "x", client_id: "backoffice", constructor: "1", "": "1", "a[b]": "1" };
      await accessTokenOf(call({ as: mobileApp, form: { ...form(), ...unknown } }));
      await accessTokenOf(call({ as: mobileApp, json: { ...form(), ...unknown, deep: [{}] } }));
      const raw = JSON.stringify(form()).replace("{", '{"__proto__":{"grant_type":"password"},');
      await accessTokenOf(call({ as: mobileApp, raw, headers: json }));
    });

    test.each(["null", "[]", '"grant_type=auth"', "{", '{"grant_type":["auth"]}', '{"grant_type":1}'])(
      "a JSON body that is not an object of texts is refused: %s",
      (raw) => expectError(call({ as: mobileApp, raw, headers: json }), "invalid_request"),
    );

    test.each(["%00", "%FF", "%ED%A0%80"])("text that is not text is refused: %s", (bytes) =>
      expectError(
        call({ as: mobileApp, raw: `grant_type=auth&auth_id=a${bytes}`, headers: urlEncoded }),
        "invalid_request",
      ),
    );

    test.each(
      Object.entries({
        username: 254,
        password: 128,
        refresh_token: 4096,
        phone: 40,
        auth_id: 128,
        otp_verification_token: 8192,
        scope: 2048,
      }),
    )("%s of more than %i characters is refused", (name, limit) =>
      expectError(
        call({ as: mobileApp, form: { ...form(), [name]: "a".repeat(limit + 1) } }),
        "invalid_request",
        new RegExp(`/body/${name}`),
      ),
    );

    test("a media type may name its charset", async () => {
      const headers = { "content-type": "Application/X-WWW-Form-Urlencoded; charset=UTF-8" };
      const raw = new URLSearchParams(form()).toString();
      await accessTokenOf(call({ as: mobileApp, raw, headers }));
    });

    test.each([
      ["password", ["username", "password"]],
      ["refresh_token", ["refresh_token"]],
      ["phone_otp", ["phone"]],
      ["auth", ["auth_id"]],
      ["phone_otp_token", ["phone", "otp_verification_token"]],
    ])("grant_type=%s without one of %j is refused and the parameter named", async (grant_type, needed) => {
      for (const missing of needed) {
        const rest = needed.filter((name) => name !== missing).map((name) => [name, "x"]);
        const request = call({ as: mobileApp, form: { grant_type, ...Object.fromEntries(rest) } });
        await expectError(request, "invalid_request", new RegExp(`/body/${missing} is required`));
      }
    });

    test.each([
      "Auth",
      "auth ",
      "client_credentials",
      "authorization_code",
      "__proto__",
      "constructor",
      "toString",
    ])("grant_type=%j is not supported", (grant_type) =>
      expectError(call({ as: mobileApp, form: { ...form(), grant_type } }), "unsupported_grant_type"),
    );
  });

  describe("client authentication", () => {
    const raw = (text: string) => `Basic ${Buffer.from(text).toString("base64")}`;
    const wrong: Record<string, string | undefined> = {
      "no header": undefined,
      "a wrong secret": basic("backend", "wrong"),
      "another client's secret": basic("backend", "backoffice-dev-secret"),
      "an unknown client": basic("nobody", "backend-dev-secret"),
      "another case": basic("Backend", "backend-dev-secret"),
      "no secret": basic("backend", ""),
      "no id": basic("", "backend-dev-secret"),
      nothing: "Basic ",
      "no colon": raw("backend"),
      "a NUL": raw("backend\0:backend-dev-secret"),
      "a NUL that is encoded": raw("backend%00:backend-dev-secret"),
      "bytes that are not base64": "Basic !!!!",
      "another scheme": `Bearer ${Buffer.from("backend:backend-dev-secret").toString("base64")}`,
      "two schemes": `${mobileApp}, ${backoffice}`,
      "a very long header": `Basic ${"A".repeat(6000)}`,
      "a hash for a secret": basic("backend", "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAA$AAAA"),
    };
    test("that fails is 400 invalid_client, byte for byte the same for every reason", async () => {
      const texts = new Set<string>();
      for (const [reason, as] of Object.entries(wrong)) {
        const { status, body, text } = await call({ ...(as !== undefined && { as }), form: form() });
        expect({ status, body }, reason).toMatchObject({ status: 400, body: { error: "invalid_client" } });
        texts.add(text);
      }
      expect(texts.size).toBe(1);
    });

    test("takes the scheme in any case", async () => {
      await accessTokenOf(call({ as: mobileApp.replace("Basic", "bAsIC"), form: form() }));
    });

    test("takes an id and a secret that are form-encoded", async () => {
      const as = raw(`${formEncode(encoded.clientId)}:${formEncode(encoded.clientSecret)}`);
      const claims = decodeJwt(await accessTokenOf(call({ as, form: form() })));
      expect(claims).toMatchObject({ client_id: encoded.clientId, aud: [encoded.clientId] });
      const lower = as.replace(/^Basic (.*)$/, (_, text: string) =>
        raw(
          Buffer.from(text, "base64")
            .toString()
            .replace(/%../g, (hex) => hex.toLowerCase()),
        ),
      );
      await accessTokenOf(call({ as: lower, form: form() }));
      const percentSpaces = raw(
        `${encodeURIComponent(encoded.clientId)}:${encodeURIComponent(encoded.clientSecret)}`,
      );
      await accessTokenOf(call({ as: percentSpaces, form: form() }));
      await expectError(
        call({ as: basic(encoded.clientId, encoded.clientSecret), form: form() }),
        "invalid_client",
      );
    });

    test("takes plain ones that look encoded, as often as they come", async () => {
      for (let request = 0; request < 30; request += 1) {
        await accessTokenOf(call({ as: basic(plain.clientId, plain.clientSecret), form: form() }));
      }
      const as = raw(`${formEncode(plain.clientId)}:${formEncode(plain.clientSecret)}`);
      await accessTokenOf(call({ as, form: form() }));
    });

    test.each(["client_secret", "client_assertion"])("in two ways at once is refused: %s", async (name) => {
      const twice = { ...form(), client_id: "backend", [name]: "backend-dev-secret" };
      await expectError(call({ as: mobileApp, form: twice }), "invalid_request", /second time/);
      await expectError(call({ as: mobileApp, json: twice }), "invalid_request", /second time/);
    });

    test("that fails is challenged by the scheme that is expected, with the 400 of the contract", async () => {
      for (const as of [undefined, basic("backend", "wrong"), "Bearer x"]) {
        const { status, headers, body } = await call({ ...(as !== undefined && { as }), form: form() });
        expect({ status, body }).toMatchObject({ status: 400, body: { error: "invalid_client" } });
        expect(headers.get("www-authenticate")).toBe('Basic realm="gatepost", charset="UTF-8"');
      }
      const other = await call({ as: mobileApp, form: { ...form(), auth_id: "nobody" } });
      expect([other.status, other.headers.get("www-authenticate")]).toEqual([400, null]);
    });

    test("in the body is none for a client that is not registered for it, nor in the URL", async () => {
      const credentials = { client_id: "backend", client_secret: "backend-dev-secret" };
      await expectError(call({ form: { ...form(), ...credentials } }), "invalid_client");
      const query = `?${new URLSearchParams(credentials)}`;
      await expectError(call({ query, form: form() }), "invalid_client");
      await accessTokenOf(call({ as: mobileApp, query, form: form() }));
    });

    test("reads no parameter from the URL", async () => {
      const query = `?${new URLSearchParams(form())}`;
      await expectError(call({ as: mobileApp, query, raw: "", headers: urlEncoded }), "invalid_request");
      await expectError(
        call({ as: mobileApp, query, form: { grant_type: "auth" } }),
        "invalid_request",
        /auth_id/,
      );
    });
  });

  test("no response may be cached, neither a success nor an error", async () => {
    const requests: [number, CallOptions][] = [
      [200, { as: mobileApp, form: form() }],
      [200, { as: mobileApp, json: form() }],
      [400, { form: form() }],
      [400, { as: mobileApp, form: "" }],
      [400, { as: mobileApp, form: { ...form(), auth_id: "nobody" } }],
      [405, { as: mobileApp, method: "DELETE" }],
      [406, { as: mobileApp, form: form(), headers: { accept: "text/html" } }],
      [413, { as: mobileApp, raw: "a".repeat(70_000), headers: urlEncoded }],
      [415, { as: mobileApp, raw: "<grant/>", headers: { "content-type": "application/xml" } }],
    ];
    for (const [expected, request] of requests) {
      const { status, headers, text } = await call(request);
      expect(status, text).toBe(expected);
      expect(headers.get("cache-control")).toBe("no-store");
      expect(headers.get("pragma")).toBe("no-cache");
    }
  });

  describe("a grant that the client may not use is refused", () => {
    const parameters = {
      username: "a",
      password: "a",
      refresh_token: "a",
      phone: "+12025550123",
      auth_id: "a",
    };
    const all = { ...parameters, otp_verification_token: "a" };
    const refuse = (as: string, grant_type: string) =>
      expectError(call({ as, form: { ...all, grant_type } }), "unauthorized_client");

    test.each(every)("%s: by a client without grants, and by the internal client", async (grantType) => {
      await refuse(basic("powerless", "powerless-secret"), grantType);
      await refuse(internal, grantType);
    });
    test.each(["phone_otp", "auth", "phone_otp_token"])("%s: by the back office", (grantType) =>
      refuse(backoffice, grantType),
    );
  });

  describe("scope", () => {
    const scopesFor = (scope: string) => scopeOf(call({ as: asScoped, form: { ...form(), scope } }));

    test("is all that the client is permitted unless it is asked for", async () => {
      expect(await scopeOf(call({ as: asScoped, form: form() }))).toBe("a b c");
    });

    test("is what is asked for, each once", async () => {
      expect(await scopesFor("b")).toBe("b");
      expect(await scopesFor("c a")).toBe("c a");
      expect(await scopesFor(" b  a b ")).toBe("b a");
    });

    test("is absent for a client that has none", async () => {
      const as = basic(plain.clientId, plain.clientSecret);
      const token = await accessTokenOf(call({ as, form: form() }));
      expect(decodeJwt(token)).not.toHaveProperty("scope");
      expect(await api.introspect(token)).not.toHaveProperty("scope");
    });

    test.each(["d", "a d", "A", "a,b", "orders", "*", "a\tb", 'a"', "a\\", "ä", "__proto__"])(
      "%j is more than is permitted, or malformed: refused",
      (scope) => expectError(call({ as: asScoped, form: { ...form(), scope } }), "invalid_scope"),
    );

    test.each([" ", "   ", "\t", "\n", "\u00a0", "a\t", "\ta", "a \t"])(
      "%j has no scope, or white space that is no separator: refused, at first and at a refresh",
      async (scope) => {
        const { refresh_token } = await api.newPair(authId, asScoped);
        for (const grant of [form(), { grant_type: "refresh_token", refresh_token }]) {
          await expectError(call({ as: asScoped, form: { ...grant, scope } }), "invalid_scope");
          await expectError(call({ as: asScoped, json: { ...grant, scope } }), "invalid_scope");
        }
        const empty = { grant_type: "refresh_token", refresh_token, scope: "" };
        expect(await scopeOf(call({ as: asScoped, form: empty }))).toBe("a b c");
      },
    );

    test("of a refresh narrows the access token and nothing else", async () => {
      const pair = await api.newPair(authId, asScoped);
      const refresh = (refresh_token: string, scope?: string) =>
        call({ as: asScoped, form: { grant_type: "refresh_token", refresh_token, ...(scope && { scope }) } });
      const narrowed = await refresh(pair.refresh_token, "b");
      expect(decodeJwt((narrowed.body as typeof pair).access_token)["scope"]).toBe("b");
      expect(await scopeOf(refresh((narrowed.body as typeof pair).refresh_token))).toBe("a b c");
    });

    test("of a refresh never exceeds what was granted, and asking costs the token nothing", async () => {
      const granted = await call({ as: asScoped, form: { ...form(), scope: "a b" } });
      const { refresh_token } = granted.body as { refresh_token: string };
      const refresh = (scope: string) =>
        call({ as: asScoped, form: { grant_type: "refresh_token", refresh_token, scope } });
      for (const scope of ["c", "a b c", "d"]) await expectError(refresh(scope), "invalid_scope");
      expect(await scopeOf(refresh("a"))).toBe("a");
    });
  });
});
