/**
 * Events of the auth service: each cause writes its event, as proto/auth/v1/events.proto defines it; and the
 * relay delivers every event once while nothing fails, again after a failure, and in order.
 */
import { type DescMessage, fromJson } from "@bufbuild/protobuf";
import { decodeJwt } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { file_auth_v1_events, RevocationReasonSchema } from "../../gen/proto/auth/v1/events_pb.ts";
import { guessingRules } from "../../src/auth/limits/guessing.ts";
import { decodeRefreshToken } from "../../src/auth/tokens/refresh-token.ts";
import {
  type AuthApi,
  authApi,
  basic,
  internal,
  mobileApp,
  newPhone,
  type TokenPair,
} from "../support/auth-api.ts";
import { deployments, eventsIn, type LoggedEvent, startFleet, withClients } from "../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../support/auth-store.ts";
import { otpVerifier } from "../support/otp.ts";
import { backends } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

/** A client without a grace window. */
const strict = basic("strict", "strict-secret");
const clients = withClients({
  clientId: "strict",
  clientSecret: "strict-secret",
  grantTypes: ["auth", "refresh_token"],
  tokenSettings: { refreshGraceSeconds: 0 },
});

/** `AuthorizationReuseDetected` is `auth.authorization.reuse_detected.v1`. */
function typeOf({ name }: DescMessage): string {
  const [subject = "", ...verb] = name
    .replace(/([a-z])([A-Z])/g, "$1 $2")
    .toLowerCase()
    .split(" ");
  return `auth.${subject}.${verb.join("_")}.v1`;
}
const schemas = new Map(file_auth_v1_events.messages.map((message) => [typeOf(message), message]));

function authorizationOf({ refresh_token }: TokenPair): string {
  return decodeRefreshToken(refresh_token)?.authorizationId ?? expect.fail("no refresh token");
}

function jtiOf({ access_token }: TokenPair): string {
  return String(decodeJwt(access_token).jti);
}

/** Types of one identity's events, in the order in which they were delivered. */
function typesOf(events: readonly LoggedEvent[]): string[] {
  return events.map(({ type }) => type.replace(/^auth\.(.*)\.v1$/, "$1"));
}

const by = (requestId?: string) =>
  requestId === undefined ? {} : { headers: { "x-request-id": requestId } };

/** The life of a user. Returns the ids and everything that no event may contain. */
async function live(api: AuthApi, origin: string) {
  const secrets = { password: "correct horse battery staple", email: `a-${crypto.randomUUID()}@example.com` };
  const phones = [newPhone(), newPhone()] as const;
  const { id } = await api.newIdentity({ phone: phones[0], metadata: { note: "private" } });
  const path = { id };
  await api.call("updateIdentity", { as: internal, path, json: { phone: phones[1], email: secrets.email } });
  await api.call("updateIdentity", { as: internal, path, json: { metadata: null } });
  const { password } = secrets;
  await api.call("setIdentityPassword", { as: internal, path, json: { password } });
  const code = await otpVerifier(origin).send(phones[1]);
  const proof = await otpVerifier(origin).prove(phones[0]);
  const pairs: TokenPair[] = [];
  const grant = async (form: Record<string, string>, as = mobileApp) => {
    const { status, text, body } = await api.token(form, as);
    expect(status, text).toBe(200);
    pairs.push(body as TokenPair);
    return body as TokenPair;
  };
  const first = await grant({ grant_type: "auth", auth_id: id });
  const second = await grant({ grant_type: "refresh_token", refresh_token: first.refresh_token });
  // A retry is no rotation.
  await grant({ grant_type: "refresh_token", refresh_token: first.refresh_token });
  const revoke = async (token: string, requestId?: string) =>
    expect((await api.call("revokeToken", { as: mobileApp, form: { token }, ...by(requestId) })).status).toBe(
      200,
    );
  // Each twice, and one again when its authorization has ended.
  await revoke(second.access_token, "revoke-access");
  await Promise.all([revoke(second.access_token), revoke(second.access_token)]);
  await revoke(second.refresh_token, "revoke-refresh");
  await revoke(second.refresh_token);
  await revoke(second.access_token);
  await revoke(first.access_token);
  // Judged are as many as the limit allows, and no more.
  for (let n = 0; n <= guessingRules.code.failures; n += 1) {
    await api.token({ grant_type: "phone_otp", phone: phones[1], password: "no code" });
  }
  await api.token({ grant_type: "password", username: phones[1], password: "wrong" });
  await api.token({ grant_type: "password", username: `${id}-unknown`, password: "wrong" });
  const byPassword = await grant({ grant_type: "password", username: id, password });
  await api.call("removeIdentityPassword", { as: internal, path, ...by("password") });
  const stolen = await grant({ grant_type: "auth", auth_id: id }, strict);
  const rightful = await grant({ grant_type: "refresh_token", refresh_token: stolen.refresh_token }, strict);
  await grant({ grant_type: "refresh_token", refresh_token: rightful.refresh_token }, strict);
  const form = { grant_type: "refresh_token", refresh_token: stolen.refresh_token };
  expect((await api.call("generateTokens", { as: strict, form, ...by("reuse") })).status).toBe(400);
  const last = await grant({ grant_type: "auth", auth_id: id });
  await api.call("deleteIdentity", { as: internal, path, ...by("delete") });
  const tokens = pairs.flatMap(({ access_token, refresh_token }) => [access_token, refresh_token]);
  const authorizations = [first, byPassword, stolen, last].map(authorizationOf);
  return {
    id,
    authorizations,
    revoked: jtiOf(second),
    private: [...Object.values(secrets), ...phones, ...tokens, code, proof, "private"],
  };
}

/** The events of {@link live}, with their data. */
function expected(id: string, revoked: string, [first, byPassword, stolen, last]: readonly string[]) {
  const identity = { identityId: id };
  const of = (authorizationId = "", clientId = "backend") => ({
    identityId: id,
    authorizationId,
    clientId,
  });
  const reason = (name: string) => ({ reason: `REVOCATION_REASON_${name}` });
  const origin = (requestId: string, caller: string) => ({ requestId, caller });
  const attempt = (what: "failed" | "locked", kind: string) =>
    [
      what === "failed" ? "attempt.failed" : "account.locked",
      { ...identity, clientId: "backend", kind: `ATTEMPT_KIND_${kind}` },
    ] as const;
  return [
    ["identity.created", identity],
    ["identity.updated", { ...identity, changedFields: ["phone", "email"] }],
    ["identity.updated", { ...identity, changedFields: ["metadata"] }],
    ["identity.updated", { ...identity, changedFields: ["password"] }],
    ["authorization.granted", { ...of(first), grantType: "auth" }],
    ["authorization.refreshed", of(first)],
    ["token.revoked", { ...of(first), jti: revoked, ...origin("revoke-access", "backend") }],
    ["authorization.revoked", { ...of(first), ...reason("CLIENT"), ...origin("revoke-refresh", "backend") }],
    ...Array.from({ length: guessingRules.code.failures }, () => attempt("failed", "CODE")),
    attempt("locked", "CODE"),
    attempt("failed", "PASSWORD"),
    ["authorization.granted", { ...of(byPassword), grantType: "password" }],
    ["identity.updated", { ...identity, changedFields: ["password"] }],
    ["authorization.granted", { ...of(stolen, "strict"), grantType: "auth" }],
    ["authorization.refreshed", of(stolen, "strict")],
    ["authorization.refreshed", of(stolen, "strict")],
    ["authorization.revoked", { ...of(stolen, "strict"), ...reason("REUSE"), ...origin("reuse", "strict") }],
    ["authorization.reuse_detected", { ...of(stolen, "strict"), ...origin("reuse", "strict") }],
    ["authorization.granted", { ...of(last), grantType: "auth" }],
    ["identity.deleted", { ...identity, ...origin("delete", "internal") }],
    // These are swept afterwards; when, does not depend on what else happens.
    [
      "authorization.revoked",
      { ...of(byPassword), ...reason("PASSWORD_CHANGED"), ...origin("password", "internal") },
    ],
    [
      "authorization.revoked",
      { ...of(last), ...reason("IDENTITY_DELETED"), ...origin("delete", "internal") },
    ],
  ] as const;
}

/** Events with those at the end that no response waits for: of guesses, and what is swept after an ending. */
function laterLast<Event>(events: readonly Event[]): Event[] {
  const later = [
    ...["attempt.failed", "account.locked"],
    ...["REVOCATION_REASON_PASSWORD_CHANGED", "REVOCATION_REASON_IDENTITY_DELETED"],
  ];
  const turn = (event: Event) => later.findIndex((part) => JSON.stringify(event).includes(part));
  return [...events].sort((one, other) => turn(one) - turn(other));
}

describe.each(backends)("events on %s", (backend) => {
  let store: AuthStore;
  let server: AuthServer;
  let api: AuthApi;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    server = await startAuthServer(backend, { env: { ...store.env, ...clients } });
    cleanup.defer(() => server.stop());
    api = authApi(server.base);
  });

  async function delivered(identityId: string, count: number): Promise<LoggedEvent[]> {
    const found = () => eventsIn(server.logs()).filter(({ subject }) => subject === identityId);
    await waitFor(() => expect(found().length).toBeGreaterThanOrEqual(count));
    return found();
  }

  test("every cause has its event with exactly the data of its schema, in the order of the causes", async () => {
    const lives = await Promise.all([live(api, server.origin), live(api, server.origin)]);
    for (const { id, revoked, authorizations } of lives) {
      const wanted = expected(id, revoked, authorizations);
      const events = laterLast(await delivered(id, wanted.length));
      expect(events.map(({ type, data }) => [type.replace(/^auth\.(.*)\.v1$/, "$1"), data])).toEqual(
        laterLast(wanted),
      );
    }
  });

  test("a client that is no longer listed ends its authorizations after a week, each with an event", async () => {
    const { id } = await api.newIdentity();
    const pair = await api.newPair(id, strict);
    await delivered(id, 2);
    await server.stop();
    const without = { ...store.env, ...withClients() };
    server = await startAuthServer(backend, { env: without });
    await server.stop();
    await store.read((query) =>
      query(
        "update auth.clients set disabled_at = disabled_at - interval '8 days' where client_id = 'strict'",
      ),
    );
    server = await startAuthServer(backend, { env: { ...without, JANITOR_INTERVAL_SECONDS: "1" } });
    api = authApi(server.base);
    const data = { identityId: id, authorizationId: authorizationOf(pair), clientId: "strict" };
    expect(await delivered(id, 1)).toMatchObject([
      {
        type: "auth.authorization.revoked.v1",
        data: { ...data, reason: "REVOCATION_REASON_CLIENT_DISABLED", requestId: "", caller: "" },
      },
    ]);
    await server.stop();
    server = await startAuthServer(backend, { env: { ...store.env, ...clients } });
    api = authApi(server.base);
    // Its new authorizations live, the former ones do not.
    expect(await api.introspect(pair.access_token)).toEqual({ active: false });
    const again = await api.newPair(id, strict);
    expect(await api.introspect(again.access_token)).toMatchObject({ active: true });
  });

  test("what is refused, retried or in vain has no event", async () => {
    const { id, phone } = await api.newIdentity();
    const { access_token } = await api.newPair(id);
    await api.call("createIdentity", { as: internal, json: { id, phone: newPhone() } });
    await api.call("createIdentity", { as: internal, json: { id: `${id}-2`, phone } });
    await api.call("updateIdentity", { as: internal, path: { id }, json: { id: "another" } });
    await api.call("updateIdentity", { as: internal, path: { id }, json: { phone: "1" } });
    await api.token({ grant_type: "password", username: `${id}-unknown`, password: "x" });
    await api.token({ grant_type: "auth", auth_id: id, scope: "admin" });
    await api.refresh("gpr_garbage");
    await api.introspect(access_token);
    await api.call("revokeToken", { as: internal, form: { token: "garbage" } });
    await api.call("deleteIdentity", { as: internal, path: { id } });
    expect(typesOf(laterLast(await delivered(id, 4)))).toEqual([
      "identity.created",
      "authorization.granted",
      "identity.deleted",
      "authorization.revoked",
    ]);
  });
});

test("the proto file has no event and no reason that the tests above do not bring about", () => {
  const wanted = expected("u", "j", ["a", "b", "c", "d"]);
  // Those of codes, and that of test/auth/tokens/bound-tokens.test.ts.
  const ofCodes = [...schemas.keys()].filter((type) => /codes|refresh_repeated_late/.test(type));
  expect(new Set([...wanted.map(([type]) => `auth.${type}.v1`), ...ofCodes])).toEqual(
    new Set(schemas.keys()),
  );
  for (const [type, data] of wanted) {
    const schema = schemas.get(`auth.${type}.v1`) ?? expect.fail(type);
    // Refuses what the schema does not have.
    expect(fromJson(schema, JSON.parse(JSON.stringify(data)))).toMatchObject({ identityId: "u" });
  }
  const reasons = JSON.stringify(wanted).match(/REVOCATION_REASON_\w+/g) ?? [];
  const declared = RevocationReasonSchema.values.map(({ name }) => name);
  // Also in tokens/user-authorizations.test.ts.
  const elsewhere = ["UNSPECIFIED", "CLIENT_DISABLED", "USER", "OPERATOR", "ORGANIZATION"].map(
    (name) => `REVOCATION_REASON_${name}`,
  );
  expect(new Set([...reasons, ...elsewhere])).toEqual(new Set(declared));
});

describe.each(deployments)("events: $name", (deployment) => {
  test("each is delivered exactly once while nothing fails, whichever process relays", async () => {
    const fleet = await startFleet(deployment, { env: clients });
    const ids = await Promise.all(
      Array.from({ length: 60 }, async () => (await fleet.next().newIdentity()).id),
    );
    await Promise.all(ids.map((id) => fleet.next().newPair(id)));
    await Promise.all(ids.map((id) => fleet.next().call("deleteIdentity", { as: internal, path: { id } })));
    await waitFor(() => expect(fleet.events().length).toBeGreaterThanOrEqual(ids.length * 4));
    await fleet.stop();
    const events = fleet.events();
    expect(new Set(events.map(({ id }) => id)).size).toBe(events.length);
    for (const id of ids) {
      expect(typesOf(fleet.events(id)).sort()).toEqual([
        "authorization.granted",
        "authorization.revoked",
        "identity.created",
        "identity.deleted",
      ]);
    }
  });
});

describe.runIf(backends.includes("PostgreSQL"))("events in the outbox of two processes: PostgreSQL", () => {
  test("they stand in the order of their causes and carry no token, secret, phone number or e-mail", async () => {
    const [, deployment] = deployments;
    const fleet = await startFleet(deployment ?? expect.fail("no PostgreSQL"), { env: clients });
    const [{ origin }] = fleet.servers;
    await fleet.store.read(async (query) => {
      // While the test holds this lock, no process has a lease to relay.
      await query("begin");
      await query("lock table auth.relay_leases in exclusive mode");
      // Requests go to the processes in turn; one-time codes are sent by the first.
      const inTurn = { ...fleet.apis[0], ...turns(fleet.next) };
      const lived = await live(inTurn, origin);
      const wanted = expected(lived.id, lived.revoked, lived.authorizations);
      const written = () =>
        query("select type, subject, data, entry::text as line from auth.outbox as entry order by position");
      await waitFor(async () => expect(await written()).toHaveLength(wanted.length));
      const rows = laterLast(await written());
      expect(rows.map(({ type, data }) => [String(type).slice(5, -3), data])).toEqual(laterLast(wanted));
      expect(new Set(rows.map(({ subject }) => subject))).toEqual(new Set([lived.id]));
      const lines = rows.map(({ line }) => String(line)).join("\n");
      for (const secret of lived.private) {
        for (const part of [secret, secret.slice(1), secret.slice(0, 40)]) expect(lines).not.toContain(part);
      }
      await query("rollback");
    });
    await fleet.stop();
  });
});

/** The calls of an API, each by the next one. */
function turns(next: () => AuthApi): Partial<AuthApi> {
  return {
    call: (...args) => next().call(...args),
    token: (...args) => next().token(...args),
    refresh: (...args) => next().refresh(...args),
    newIdentity: (...args) => next().newIdentity(...args),
  };
}
