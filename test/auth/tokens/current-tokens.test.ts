/**
 * A refresh token that the process stored itself, which needs no look-up. What the database decides must decide all the
 * same: in each of these, something has happened elsewhere of which the process that remembers the token knows nothing.
 */
import { randomBytes } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { CurrentTokens } from "../../../src/auth/tokens/current-tokens.ts";
import {
  decodeRefreshToken,
  encodeRefreshToken,
  newRefreshToken,
} from "../../../src/auth/tokens/refresh-token.ts";
import { backoffice, internal, type TokenPair } from "../../support/auth-api.ts";
import { type AuthFleet, startFleet } from "../../support/auth-fleet.ts";
import { createAuthStore } from "../../support/auth-store.ts";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const facts = { clientId: "app", identityId: "anna", scopes: ["profile"] };
const id = "0199b0a0-0000-7000-8000-000000000001";

describe("the remembered tokens", () => {
  test("have a token once, until another one takes its place", () => {
    const tokens = new CurrentTokens();
    const first = newRefreshToken(id);
    const next = newRefreshToken(id, first.family);
    tokens.remember(first, facts);
    expect(tokens.take(first)).toEqual(facts);
    expect(tokens.take(first)).toBeUndefined();
    tokens.remember(first, facts);
    tokens.remember(next, facts);
    expect(tokens.take(first)).toBeUndefined();
    expect(tokens.take(next)).toEqual(facts);
  });

  test("keep a token of which another one has a part only", () => {
    const tokens = new CurrentTokens();
    const token = newRefreshToken(id);
    tokens.remember(token, facts);
    expect(tokens.take({ ...token, family: randomBytes(32) })).toBeUndefined();
    expect(tokens.take({ ...token, rotating: randomBytes(32) })).toBeUndefined();
    expect(tokens.take(token)).toEqual(facts);
  });
});

// The embedded database belongs to one process, so nothing happens elsewhere.
describe.runIf(backends.includes("PostgreSQL"))("a token that a process remembers: PostgreSQL", () => {
  const backend = "PostgreSQL";
  let fleet: AuthFleet;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const store = await createAuthStore(backend);
    cleanup.defer(() => store.drop());
    fleet = await startFleet({ name: "", backend, servers: 1 }, { store });
    cleanup.defer(() => fleet.stop());
  });

  const granted = async () => {
    const [api] = fleet.apis;
    const { id: identityId } = await api.newIdentity();
    return { api, identityId, pair: await api.newPair(identityId) };
  };
  const refused = { status: 400, body: { error: "invalid_grant" } };

  /** What another process may have committed, by SQL. */
  const elsewhere: Record<string, (identityId: string) => string> = {
    "the authorization was revoked": (identity) =>
      `update auth.authorizations set revoked_at = now(), revocation_reason = 'CLIENT' where identity_id = '${identity}'`,
    "the authorization has expired": (identity) =>
      `update auth.authorizations set expires_at = now() - interval '1 second' where identity_id = '${identity}'`,
    "the authorization is gone": (identity) =>
      `delete from auth.authorizations where identity_id = '${identity}'`,
  };
  test.each(Object.keys(elsewhere))("is refused where %s", async (name) => {
    const { api, identityId, pair } = await granted();
    await fleet.store.read((query) => query(elsewhere[name]?.(identityId) ?? ""));
    expect(await api.refresh(pair.refresh_token)).toMatchObject(refused);
  });

  test("stays the owner's where another client presents it", async () => {
    const { api, pair } = await granted();
    expect(await api.refresh(pair.refresh_token, backoffice)).toMatchObject(refused);
    expect(await api.refresh(pair.refresh_token)).toMatchObject({ status: 200 });
  });

  test("is refused with another family, and has lost nothing by it", async () => {
    const { api, pair } = await granted();
    const token = decodeRefreshToken(pair.refresh_token);
    if (!token) throw new Error("not a refresh token");
    const forged = encodeRefreshToken({ ...token, family: randomBytes(32) });
    expect(await api.refresh(forged)).toMatchObject(refused);
    expect(await api.refresh(pair.refresh_token)).toMatchObject({ status: 200 });
  });

  test("that has expired is called so, whatever scope is asked for", async () => {
    const [api] = fleet.apis;
    const { id: auth_id } = await api.newIdentity();
    const { body } = await api.token({ grant_type: "auth", auth_id, scope: "profile" });
    const { refresh_token } = body as TokenPair;
    await fleet.store.read((query) => query(elsewhere["the authorization has expired"]?.(auth_id) ?? ""));
    const form = { grant_type: "refresh_token", refresh_token, scope: "orders" };
    expect(await api.token(form)).toMatchObject(refused);
  });

  test("is exchanged once by many at a time, and all get the same pair", async () => {
    const { api, pair } = await granted();
    const answers = await Promise.all(Array.from({ length: 20 }, () => api.refresh(pair.refresh_token)));
    const pairs = new Set(answers.map(({ body }) => (body as TokenPair).refresh_token));
    expect(answers.every(({ status }) => status === 200)).toBe(true);
    expect(pairs.size).toBe(1);
  });

  test("is revoked through this process, and is not remembered after that", async () => {
    const { api, pair } = await granted();
    const { status } = await api.call("revokeToken", { as: internal, form: { token: pair.refresh_token } });
    expect(status).toBe(200);
    expect(await api.refresh(pair.refresh_token)).toMatchObject(refused);
  });
});
