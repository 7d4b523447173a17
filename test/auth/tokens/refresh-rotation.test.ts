/**
 * Refresh token rotation, on one process and on two that share a database. What happens when a replaced
 * token comes back after its window is in refresh-reuse.test.ts, and crashes are in refresh-crash.test.ts.
 */
import { randomBytes } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { decodeRefreshToken, encodeRefreshToken, unseal } from "../../../src/auth/tokens/refresh-token.ts";
import { type Answer, basic, lasting, type TokenPair } from "../../support/auth-api.ts";
import { type AuthFleet, deployments, startFleet, withClients } from "../../support/auth-fleet.ts";
import { type AuthStore, createAuthStore, dump, rowCounts } from "../../support/auth-store.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

/** A client whose window is two seconds, so that a test can wait for its end. */
const brief = basic("brief", "brief-secret");
const env = withClients({
  clientId: "brief",
  clientSecret: "brief-secret",
  grantTypes: ["auth", "refresh_token"],
  tokenSettings: { refreshGraceSeconds: 2 },
});

/** The parts of a valid token. */
function parts(token: string) {
  const found = decodeRefreshToken(token);
  if (!found) throw new Error("not a refresh token");
  return found;
}

function pairOf({ status, text, body }: Answer): TokenPair {
  expect(status, text).toBe(200);
  return body as TokenPair;
}

/** Refreshes one after the other, each on the next server. */
async function refreshes(fleet: AuthFleet, pair: TokenPair, count: number): Promise<TokenPair[]> {
  const pairs: TokenPair[] = [];
  let last = pair;
  for (let i = 0; i < count; i += 1) {
    last = pairOf(await fleet.next().refresh(last.refresh_token));
    pairs.push(last);
  }
  return pairs;
}

const invalidGrant = {
  error: "invalid_grant",
  error_description: "The grant is not valid: it is wrong, expired, revoked or used.",
};

describe.each(deployments)("what refreshes leave in the database: $name", (deployment) => {
  let store: AuthStore;
  const pairs: TokenPair[] = [];
  const counts: Record<string, number>[] = [];
  let dumped = "";
  let row: Record<string, unknown> = {};
  let rowBytes = 0;
  let replaced: Record<string, unknown> = {};

  /** Ten refreshes, then fifty; both times the events are waited for and the database is looked at. */
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    store = await createAuthStore(deployment.backend);
    cleanup.defer(() => store.drop());
    for (const count of [10, 50]) {
      const fleet = await startFleet(deployment, { store, env });
      const [api] = fleet.apis;
      if (pairs.length === 0) pairs.push(await api.newPair((await api.newIdentity()).id));
      const last = pairs.at(-1);
      if (last) pairs.push(...(await refreshes(fleet, last, count)));
      const refreshed = () => fleet.events().filter(({ type }) => type === "auth.authorization.refreshed.v1");
      await waitFor(() => expect(refreshed()).toHaveLength(count));
      await fleet.stop();
      await store.read(async (query) => {
        counts.push(await rowCounts(query));
        dumped = await dump(query);
        row = (await query("select * from auth.authorizations"))[0] ?? {};
        const [size] = await query("select pg_column_size(a.*) as bytes from auth.authorizations a");
        rowBytes = Number(size?.["bytes"]);
        replaced = (await query("select * from auth.replaced_tokens"))[0] ?? {};
      });
    }
  });

  test("every table has as many rows after fifty more refreshes as before, but for what the janitor clears", () => {
    const [before, after] = counts.map(({ "auth.rotation_batches": _, ...others }) => others);
    expect(after).toEqual(before);
    expect(after).toMatchObject({
      "auth.authorizations": 1,
      "auth.replaced_tokens": 1,
      "auth.identities": 1,
      "auth.outbox": 0,
      "auth.revoked_access_tokens": 0,
    });
  });

  test("the row stays small", () => {
    expect(rowBytes).toBeGreaterThan(100);
    expect(rowBytes).toBeLessThan(400);
  });

  // The embedded database counts no updates.
  test.runIf(deployment.backend === "PostgreSQL")(
    "updates of the row are heap-only: no index has what a refresh changes",
    async () => {
      const [updates] = await store.read((query) =>
        query(`
        select sum(n_tup_upd)::int as all, sum(n_tup_hot_upd)::int as "heapOnly"
        from pg_stat_user_tables where schemaname = 'auth' and relname like 'authorizations%'`),
      );
      expect(updates?.["all"]).toBeGreaterThanOrEqual(60);
      expect(Number(updates?.["heapOnly"]) / Number(updates?.["all"])).toBeGreaterThan(0.9);
    },
  );

  test("a dump holds no token and no part of one, plain or encoded", () => {
    expect(dumped).toContain("auth.authorizations");
    expect(dumped).toContain(parts(pairs[0]?.refresh_token ?? "").authorizationId);
    const needles = pairs.flatMap(({ access_token, refresh_token }) => {
      const [header = "", claims = "", signature = ""] = access_token.split(".");
      const { family, rotating } = parts(refresh_token);
      const payload = Buffer.from(refresh_token.slice(4), "base64url");
      return [
        Buffer.from(access_token),
        Buffer.from(refresh_token),
        Buffer.from(`${header}.${claims}`),
        Buffer.from(signature, "base64url"),
        payload,
        family,
        rotating,
      ];
    });
    // The text itself, and whatever in it may be bytes in hexadecimal or base64.
    const hex = dumped.match(/[0-9a-f]{32,}/gi) ?? [];
    const base64 = dumped.match(/[A-Za-z0-9+/_-]{22,}/g) ?? [];
    const haystack = Buffer.concat([
      Buffer.from(dumped),
      ...hex.map((run) => Buffer.from(run, "hex")),
      ...base64.map((run) => Buffer.from(run, "base64")),
    ]);
    for (const needle of needles) {
      const encoded = (["hex", "base64", "base64url"] as const).map((form) => needle.toString(form));
      for (const form of [needle, ...encoded, needle.toString("hex").toUpperCase()]) {
        expect(haystack.includes(form)).toBe(false);
      }
    }
  });

  test("the sealed successor opens with the token that was presented and with nothing in the row", () => {
    const { sealed_pair } = replaced;
    if (!(sealed_pair instanceof Uint8Array)) throw new Error("no pair is kept");
    const sealed = Buffer.from(sealed_pair);
    const presented = parts(pairs.at(-2)?.refresh_token ?? "");
    expect(JSON.parse(unseal(presented.rotating, sealed))).toEqual(pairs.at(-1));
    const values = Object.values({ ...row, ...replaced });
    const texts = JSON.stringify(values).match(/[A-Za-z0-9_+/=-]{8,}/g) ?? [];
    const columns = values.flatMap((value) => (value instanceof Uint8Array ? [value] : []));
    const candidates = [
      ...columns.map((bytes) => Buffer.from(bytes)),
      ...texts.flatMap((text) => [
        Buffer.from(text),
        Buffer.from(text, "hex"),
        Buffer.from(text, "base64url"),
      ]),
    ];
    expect(columns).toHaveLength(4);
    for (const candidate of candidates) expect(() => unseal(candidate, sealed)).toThrow();
  });
});

describe.each(deployments)("rotation: $name", (deployment) => {
  let fleet: AuthFleet;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    fleet = await startFleet(deployment, { env });
    cleanup.defer(() => fleet.stop());
  });

  async function newUser(as?: string) {
    const { id } = await fleet.next().newIdentity();
    return { id, pair: await fleet.next().newPair(id, as) };
  }
  async function isActive({ access_token }: TokenPair): Promise<boolean> {
    return (await fleet.next().introspect(access_token)).active;
  }

  test("a retry on any process gets the very tokens that the first attempt got", async () => {
    const { pair } = await newUser();
    const first = pairOf(await fleet.next().refresh(pair.refresh_token));
    for (const api of [...fleet.apis, ...fleet.apis]) {
      expect(pairOf(await api.refresh(pair.refresh_token))).toMatchObject(lasting(first));
    }
  });

  test("fifty at once, spread over the processes, get one pair and rotate once", async () => {
    const { id, pair } = await newUser();
    const responses = await Promise.all(
      Array.from({ length: 50 }, () => fleet.next().refresh(pair.refresh_token)),
    );
    // A second may pass between them, and responses do not come in the order of their making.
    const pairs = responses.map(pairOf).sort((a, b) => b.expires_in - a.expires_in);
    const next = pairs[0] ?? expect.fail("no response");
    for (const other of pairs) expect(other).toMatchObject(lasting(next));
    expect(next.refresh_token).not.toBe(pair.refresh_token);
    expect(await isActive(next)).toBe(true);
    await fleet.next().call("revokeToken", {
      as: basic("internal", "internal-dev-secret"),
      form: { token: next.refresh_token },
    });
    await fleet.delivered(id, [
      "auth.identity.created.v1",
      "auth.authorization.granted.v1",
      "auth.authorization.refreshed.v1",
      "auth.authorization.revoked.v1",
    ]);
  });

  test("each generation returns its own successor until that is presented", async () => {
    const { pair } = await newUser();
    const chain = [pair];
    for (let i = 0; i < 12; i += 1) {
      const { refresh_token } = chain.at(-1) ?? pair;
      const next = pairOf(await fleet.next().refresh(refresh_token));
      for (const api of fleet.apis)
        expect(pairOf(await api.refresh(refresh_token))).toMatchObject(lasting(next));
      expect(chain).not.toContainEqual(next);
      chain.push(next);
    }
    for (const one of chain) expect(await isActive(one)).toBe(true);
  });

  // RFC 9700 section 4.14.2: once the successor has been presented, its predecessor can only be a copy.
  test("old and new tokens presented at once rotate once, and what is issued is all active or all ended", async () => {
    const { pair } = await newUser();
    const [second = pair] = await refreshes(fleet, pair, 1);
    const tokens = [pair, second].flatMap(({ refresh_token }) => Array<string>(15).fill(refresh_token));
    const responses = await Promise.all(tokens.map((token) => fleet.next().refresh(token)));
    const issued = responses.flatMap(({ status, body }) => (status === 200 ? [body as TokenPair] : []));
    const newest = issued.filter(({ refresh_token }) => refresh_token !== second.refresh_token);
    expect(new Set(newest.map(({ refresh_token }) => refresh_token)).size).toBeLessThanOrEqual(1);
    const active = await Promise.all([second, ...issued].map(isActive));
    expect(new Set(active).size).toBe(1);
    expect(active[0]).toBe(responses.every(({ status }) => status === 200));
  });

  test("by the real clock too, the window closes and what is presented then ends everything", async () => {
    const { id, pair } = await newUser(brief);
    const next = pairOf(await fleet.next().refresh(pair.refresh_token, brief));
    expect(pairOf(await fleet.next().refresh(pair.refresh_token, brief))).toMatchObject(lasting(next));
    // Each look is a retry, which harms nothing while the window is open.
    await waitFor(async () =>
      expect((await fleet.next().refresh(pair.refresh_token, brief)).status).toBe(400),
    );
    for (const api of fleet.apis) {
      expect((await api.introspect(next.access_token)).active).toBe(false);
      expect((await api.refresh(next.refresh_token, brief)).body).toEqual(invalidGrant);
    }
    await fleet.delivered(id, [
      "auth.identity.created.v1",
      "auth.authorization.granted.v1",
      "auth.authorization.refreshed.v1",
      "auth.authorization.revoked.v1",
      "auth.authorization.reuse_detected.v1",
    ]);
  });

  describe("a forged or garbled token is refused and harms nothing", () => {
    let user: { id: string; pair: TokenPair };
    let other: { id: string; pair: TokenPair };
    /** A token that has been replaced, so that it could be taken for a reused one. */
    let replaced: TokenPair;
    beforeAll(async () => {
      user = await newUser(brief);
      other = await newUser(brief);
      replaced = user.pair;
      user.pair = pairOf(await fleet.next().refresh(replaced.refresh_token, brief));
    });

    async function refuses(tokens: readonly string[], as = brief): Promise<void> {
      const responses = await Promise.all(
        tokens.map((refresh_token) =>
          fleet.next().call("generateTokens", { as, json: { grant_type: "refresh_token", refresh_token } }),
        ),
      );
      for (const [index, response] of responses.entries())
        expect(response.body, tokens[index]).toEqual(invalidGrant);
      for (const { pair } of [user, other]) expect(await isActive(pair)).toBe(true);
    }
    async function livesOn(): Promise<void> {
      for (const one of [user, other]) {
        one.pair = pairOf(await fleet.next().refresh(one.pair.refresh_token, brief));
      }
    }

    test("with any one character changed, over its whole length", async () => {
      for (const token of [user.pair.refresh_token, replaced.refresh_token]) {
        await refuses(
          Array.from(token, (character, at) => {
            const changed = character === "A" ? "B" : "A";
            return `${token.slice(0, at)}${changed}${token.slice(at + 1)}`;
          }),
        );
      }
      await livesOn();
    });

    test("truncated, extended, or in another spelling", async () => {
      const token = user.pair.refresh_token;
      const bytes = Buffer.from(token.slice(4), "base64url");
      await refuses([
        ...Array.from({ length: token.length - 1 }, (_, length) => token.slice(0, length + 1)),
        `${token}A`,
        `${token}AAAA`,
        `${token}=`,
        `${token}\n`,
        ` ${token}`,
        `${token}${token}`,
        token.toUpperCase(),
        token.toLowerCase(),
        token.replace("gpr_", "GPR_"),
        token.slice(4),
        `gpr_${bytes.toString("base64").replaceAll("-", "+")} `,
        `gpr_${bytes.toString("hex")}`,
        `gpr_${Buffer.concat([bytes, Buffer.alloc(3)]).toString("base64url")}`,
        encodeURIComponent(`${token}/`),
      ]);
      await livesOn();
    });

    test("made of parts of others, with every part valid by itself", async () => {
      const mine = parts(other.pair.refresh_token);
      const theirs = parts(user.pair.refresh_token);
      const old = parts(replaced.refresh_token);
      const { authorizationId } = theirs;
      await refuses([
        encodeRefreshToken({ ...mine, authorizationId }),
        encodeRefreshToken({ ...mine, authorizationId, rotating: randomBytes(32) }),
        encodeRefreshToken({ ...mine, authorizationId, rotating: theirs.rotating }),
        encodeRefreshToken({ ...mine, authorizationId, rotating: old.rotating }),
        encodeRefreshToken({ authorizationId, family: randomBytes(32), rotating: randomBytes(32) }),
        encodeRefreshToken({ ...mine, authorizationId: "00000000-0000-4000-8000-000000000000" }),
        // The halves of two genuine tokens.
        replaced.refresh_token.slice(0, 68) + other.pair.refresh_token.slice(68),
        replaced.refresh_token.slice(0, 110) + user.pair.refresh_token.slice(110),
      ]);
      await livesOn();
    });

    test("an access token, and anything else that is no refresh token", async () => {
      await refuses([
        user.pair.access_token,
        "gpr_",
        `gpr_${"A".repeat(128)}`,
        `gpr_${"_".repeat(128)}`,
        "null",
        "🔑".repeat(66),
        "' or true --",
        "../../etc/passwd",
      ]);
      await livesOn();
    });

    test("of another client, whether it is in use or replaced", async () => {
      await refuses(
        [user.pair.refresh_token, replaced.refresh_token],
        basic("backend", "backend-dev-secret"),
      );
      await livesOn();
    });
  });
});
