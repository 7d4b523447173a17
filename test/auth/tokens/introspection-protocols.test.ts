/**
 * One introspection, whatever protocol it is asked by: the same answer for every state of a token, and the
 * same rules for who may ask.
 */
import { execFile } from "node:child_process";
import { generateKeyPairSync } from "node:crypto";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { decodeJwt, importPKCS8, SignJWT, UnsecuredJWT } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import {
  IntrospectRequestSchema,
  IntrospectResponseSchema,
} from "../../../gen/proto/auth/v1/introspection_pb.ts";
import { objectOf } from "../../../scripts/openapi/document.ts";
import { type AuthApi, authApi, basic, internal, mobileApp } from "../../support/auth-api.ts";
import { withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { envelope, rawRequest } from "../../support/grpc-client.ts";
import { type Introspector, introspectors, refusal } from "../../support/introspectors.ts";
import { type MovableClock, movableClock } from "../../support/movable-clock.ts";
import { openapiDocuments } from "../../support/openapi-documents.ts";
import { otpVerifier } from "../../support/otp.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const gateway = basic("gateway", "gateway-secret");
const bare = basic("bare", "bare-secret");
const clients = withClients(
  {
    clientId: "gateway",
    clientSecret: "gateway-secret",
    grantTypes: [],
    clientSettings: { mayIntrospect: true },
  },
  { clientId: "bare", clientSecret: "bare-secret", grantTypes: ["auth", "refresh_token"] },
);
/** The members that the document lists. */
const documented = objectOf(
  openapiDocuments
    .find(({ name }) => name === "auth")
    ?.schemas.find(({ at }) => at.endsWith("/schemas/Introspection"))?.schema["properties"],
);
const method = "/auth.v1.IntrospectionService/Introspect";

describe.each(backends)("introspection on %s", (backend) => {
  let store: AuthStore;
  let clock: MovableClock;
  let server: AuthServer;
  let api: AuthApi;
  let askers: readonly Introspector[];
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    clock = movableClock();
    server = await startAuthServer(backend, { env: { ...store.env, ...clients }, clock });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
    askers = introspectors(server);
    cleanup.defer(() => {
      for (const asker of askers) asker.close();
    });
  });

  async function newToken(as = mobileApp): Promise<string> {
    return (await api.newPair((await api.newIdentity()).id, as)).access_token;
  }

  test("an active token has the same answer over every protocol", async () => {
    const { id } = await api.newIdentity();
    const { access_token } = await api.newPair(id);
    const now = String(Math.floor(clock.now() / 1000));
    const answers = await Promise.all(askers.map((asker) => asker.ask(access_token)));
    expect(answers[0]).toEqual({
      active: true,
      sub: id,
      aud: ["backend", "storefront", "push"],
      userInfo: { userId: id },
      nbf: now,
      iss: store.env["OAUTH_SERVER_ISSUER"],
      exp: String(Number(now) + 900),
      iat: now,
      jti: decodeJwt(access_token).jti,
      clientId: "backend",
      tokenType: "Bearer",
      scope: "profile orders",
      username: id,
    });
    for (const answer of answers) expect(answer).toEqual(answers[0]);
  });

  test("a token that was issued before the clock was set back is active at once, unless it is revoked", async () => {
    const [token, revoked] = [await newToken(), await newToken()];
    clock.move(-3600);
    try {
      await api.call("revokeToken", { as: internal, form: { token: revoked } });
      for (const asker of askers) {
        expect(await asker.ask(token)).toMatchObject({ active: true });
        expect(await asker.ask(revoked)).toEqual({ active: false });
      }
      expect((await api.call("revokeToken", { as: internal, form: { token } })).status).toBe(200);
      for (const asker of askers) expect(await asker.ask(token)).toEqual({ active: false });
    } finally {
      clock.move(3600);
    }
  });

  test("a token without scopes has no scope, and one audience is a list of one", async () => {
    const token = await newToken(bare);
    for (const asker of askers) {
      const answer = await asker.ask(token);
      expect(answer).toMatchObject({ active: true, aud: ["bare"], clientId: "bare" });
      expect(answer).not.toHaveProperty("scope");
    }
  });

  test("time claims are integers over HTTP and texts over gRPC and Connect", async () => {
    const token = await newToken();
    const { iat, exp, nbf, client_id, token_type } = {
      client_id: "",
      token_type: "",
      ...(await api.introspect(token)),
      ...decodeJwt(token),
    };
    expect(await api.introspect(token)).toMatchObject({ iat, exp, nbf, client_id, token_type });
    const response = await fetch(`${server.origin}${method}`, {
      method: "POST",
      headers: { authorization: internal, "content-type": "application/json" },
      body: JSON.stringify({ token }),
    });
    expect(await response.json()).toMatchObject({ iat: `${iat}`, exp: `${exp}`, nbf: `${nbf}` });
  });

  test("the time claims of an inactive token are absent, not an empty text, to who reads the message", async () => {
    const claimsOf = async (token: string) => {
      const response = await fetch(`${server.origin}${method}`, {
        method: "POST",
        headers: { authorization: internal, "content-type": "application/proto" },
        body: toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token })),
      });
      const bytes = new Uint8Array(await response.arrayBuffer());
      const { active, nbf, exp, iat } = fromBinary(IntrospectResponseSchema, bytes);
      return { active, claims: [nbf, exp, iat].map((claim) => typeof claim) };
    };
    expect(await claimsOf(await newToken())).toEqual({
      active: true,
      claims: ["string", "string", "string"],
    });
    expect(await claimsOf("garbage")).toEqual({
      active: false,
      claims: ["undefined", "undefined", "undefined"],
    });
  });

  test("over HTTP, what is active has all members of the document, and what is not has no other", async () => {
    const body = async (token: string) =>
      (await api.call("introspectToken", { as: internal, form: { token } })).body;
    const answer = await body(await newToken());
    expect(Object.keys(Object(answer)).sort()).toEqual(
      // Of a client that acts for an organization.
      [...Object.keys(documented).filter((name) => name !== "org_id"), "client_id", "token_type"].sort(),
    );
    const { clientId, tokenType } = Object(answer);
    expect(answer).toMatchObject({ active: true, client_id: clientId, token_type: tokenType });
    expect(await body("garbage")).toEqual({ active: false });
  });

  test("a hint, right or wrong, changes nothing", async () => {
    const token = await newToken();
    const { refresh_token } = await api.newPair((await api.newIdentity()).id);
    for (const asker of askers) {
      for (const hint of ["access_token", "refresh_token", "nonsense", ""]) {
        expect(await asker.ask(token, { hint })).toMatchObject({ active: true });
        expect(await asker.ask(refresh_token, { hint })).toEqual({ active: false });
      }
    }
  });

  /** Tokens that are not active, each for a reason of its own. */
  async function inactive(): Promise<Record<string, string>> {
    const { signing } = server.settings;
    const key = await importPKCS8(signing.privateKey, "RS256");
    const stranger = generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
    const sample = await newToken();
    const claims = decodeJwt(sample);
    const header = { alg: "RS256", typ: "at+jwt", kid: signing.keyId };
    const sign = (change: object, head: object = {}, by: Parameters<SignJWT["sign"]>[0] = key) =>
      new SignJWT({ ...claims, ...change }).setProtectedHeader({ ...header, ...head }).sign(by);
    expect((await askers[0]?.ask(await sign({})))?.active, "the forger's tools work").toBe(true);
    const revoked = await newToken();
    await api.call("revokeToken", { as: internal, form: { token: revoked } });
    const ended = await api.newPair((await api.newIdentity()).id);
    await api.call("revokeToken", { as: internal, form: { token: ended.refresh_token } });
    const user = await api.newIdentity();
    const orphan = await api.newPair(user.id);
    await api.call("deleteIdentity", { as: internal, path: { id: user.id } });
    const unknown = "00000000-0000-4000-8000-000000000000.AAAAAAAAAAAAAAAAAAAAAA";
    return {
      "revoked by itself": revoked,
      "of a revoked authorization": ended.access_token,
      "of a deleted identity": orphan.access_token,
      "a refresh token": (await api.newPair((await api.newIdentity()).id)).refresh_token,
      "a refresh token that was revoked": ended.refresh_token,
      "an OTP proof": await otpVerifier(server.origin).prove((await api.newIdentity()).phone),
      expired: await sign({ exp: Math.floor(clock.now() / 1000) }),
      "of the future": await sign({ nbf: Math.floor(clock.now() / 1000) + 3600 }),
      "of an unknown authorization": await sign({ jti: unknown }),
      "without a jti": await sign({ jti: undefined }),
      "with a jti of another form": await sign({ jti: "1" }),
      "of another issuer": await sign({ iss: `${claims.iss}/` }),
      "of another type": await sign({}, { typ: "JWT" }),
      "signed by somebody else": await sign({}, {}, stranger),
      "signed with an unknown key": await sign({}, { kid: "unknown" }, stranger),
      "signed by nobody": new UnsecuredJWT(claims).encode(),
      "with another payload": sample.replace(
        /\.[^.]+\./,
        `.${Buffer.from(JSON.stringify({ ...claims, sub: "x" })).toString("base64url")}.`,
      ),
      "with a character missing": sample.slice(0, -1),
      "with a space": `${sample} `,
      garbage: "garbage",
      dots: "..",
      "not ASCII": "тoken \u{1f511}",
      long: "A".repeat(60_000),
      sql: "' or '1'='1",
    };
  }

  test("every inactive token has the same answer, byte for byte, over every protocol", async () => {
    const tokens = await inactive();
    const port = Number(server.grpc.split(":")[1]);
    const asked = {
      HTTP: (token: string) =>
        post(
          "/api/auth/oauth2/v1/introspect",
          "application/x-www-form-urlencoded",
          new URLSearchParams({ token }).toString(),
        ),
      "Connect, JSON": (token: string) => post(method, "application/json", JSON.stringify({ token })),
      "Connect, binary": (token: string) => post(method, "application/proto", bytes(token)),
      "gRPC-Web": (token: string) =>
        post(method, "application/grpc-web+proto", Buffer.from(envelope(bytes(token)))),
      gRPC: async (token: string) => {
        const head = { ":path": method, authorization: internal };
        const { headers, trailers, body } = await rawRequest(port, head, envelope(bytes(token)));
        return plain([Object.entries(headers), Object.entries(trailers), body.toString("latin1")]);
      },
    };
    for (const [protocol, ask] of Object.entries(asked)) {
      const answers = new Map<string, string[]>();
      for (const [state, token] of Object.entries(tokens)) {
        const answer = await ask(token);
        answers.set(answer, [...(answers.get(answer) ?? []), state]);
      }
      expect([...answers.values()], protocol).toEqual([Object.keys(tokens)]);
    }
    expect(await asked.HTTP("x")).toContain('{\\"active\\":false}');
  });
  function bytes(token: string): Buffer<ArrayBuffer> {
    return Buffer.from(toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token })));
  }
  async function post(path: string, type: string, body: string | Buffer<ArrayBuffer>): Promise<string> {
    const headers = { authorization: internal, "content-type": type };
    const response = await fetch(`${server.origin}${path}`, { method: "POST", headers, body });
    expect(response.status).toBe(200);
    return plain([[...response.headers], Buffer.from(await response.arrayBuffer()).toString("latin1")]);
  }
  /** Without what differs from answer to answer by its nature. */
  function plain(answer: unknown[]): string {
    return JSON.stringify(answer).replaceAll(/\["(date|x-request-id)","[^"]*"\],?/g, "");
  }

  test("every inactive token is {active: false} to every kind of client", async () => {
    for (const [state, token] of Object.entries(await inactive())) {
      for (const asker of askers)
        expect(await asker.ask(token), `${state}, ${asker.protocol}`).toEqual({ active: false });
    }
  });

  test("a token is active until its last second, and not after it", async () => {
    const token = await newToken();
    clock.move(899);
    for (const asker of askers) expect(await asker.ask(token)).toMatchObject({ active: true });
    clock.move(1);
    for (const asker of askers) expect(await asker.ask(token)).toEqual({ active: false });
  });

  test("the internal client, a client that may introspect, and the API key may ask; either suffices", async () => {
    const token = await newToken();
    const key = server.settings.platformSecurityApiKeys[0] ?? expect.fail("no API key");
    for (const asker of askers) {
      for (const headers of [
        { authorization: internal },
        { authorization: gateway },
        { "x-api-key": key },
        { authorization: basic("nobody", "wrong"), "x-api-key": key },
        { authorization: gateway, "x-api-key": "wrong" },
      ]) {
        expect(await asker.ask(token, { headers }), asker.protocol).toMatchObject({ active: true });
      }
    }
  });

  test("a client that may not introspect is told so, and what is missing", async () => {
    const headers = { authorization: bare };
    for (const asker of askers) {
      const refused = asker.ask("garbage", { headers });
      await expect(refused, asker.protocol).rejects.toThrow(/may not introspect.* need mayIntrospect: true/);
    }
    const { status, body } = await api.call("introspectToken", { as: bare, form: { token: "garbage" } });
    expect({ status, body }).toMatchObject({ status: 401, body: { error: "unauthorized_client" } });
  });

  test("nobody else may ask, about a good token, a bad one, or none at all", async () => {
    const key = server.settings.platformSecurityApiKeys[0] ?? expect.fail("no API key");
    const good = await newToken();
    const refused: Record<string, string>[] = [
      {},
      { authorization: mobileApp },
      { authorization: bare },
      { authorization: basic("gateway", "wrong") },
      { authorization: basic("nobody", "gateway-secret") },
      { authorization: basic("backoffice", key) },
      { authorization: `Bearer ${good}` },
      { authorization: "Basic" },
      { authorization: key },
      { "x-api-key": "wrong" },
      { "x-api-key": `${key}x` },
      { "x-api-key": "" },
      { "x-api-key": "internal-dev-secret" },
    ];
    for (const asker of askers) {
      for (const headers of refused) {
        const tokens = [good, "garbage"];
        const found = await Promise.all(tokens.map((one) => refusal(asker.ask(one, { headers }))));
        expect(found, `${asker.protocol} ${JSON.stringify(headers)}`).toEqual([401, 401]);
      }
      expect(await refusal(asker.ask("", { headers: {} }))).toBe(401);
    }
    const unauthenticated = await api.call("introspectToken", { form: { token: good } });
    expect(unauthenticated.headers.get("www-authenticate")).toMatch(/^Basic /);
  });

  test("a missing token is 400 over HTTP and INTERNAL over the others", async () => {
    for (const asker of askers) expect(await refusal(asker.ask("")), asker.protocol).toBe(400);
  });

  test("buf curl finds the method by reflection and gets the answer", async () => {
    const token = await newToken();
    const buf = fileURLToPath(new URL("../../../node_modules/.bin/buf", import.meta.url));
    const address = `http://${server.grpc}`;
    const curl = (...rest: string[]) =>
      promisify(execFile)(buf, ["curl", "--protocol", "grpc", "--http2-prior-knowledge", ...rest]);
    const listed = await curl("--list-services", address);
    expect(listed.stdout.split("\n")).toContain("auth.v1.IntrospectionService");
    const header = `authorization: ${internal}`;
    const answer = await curl("-H", header, "-d", JSON.stringify({ token }), `${address}${method}`);
    expect(JSON.parse(answer.stdout)).toMatchObject({ active: true, clientId: "backend" });
    const refused = await curl("-d", JSON.stringify({ token }), `${address}${method}`).catch(
      (error) => error,
    );
    expect(JSON.parse(refused.stderr)).toMatchObject({ code: "unauthenticated" });
  });
});
