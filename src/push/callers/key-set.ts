/**
 * The key set of an issuer (OpenID Connect Discovery section 4), cached in memory. It is fetched once at a time, for
 * unknown key ids at most every `cooldownMs`; the cached keys stay valid while the issuer is unavailable.
 */

import { createPublicKey, type JsonWebKey, type KeyObject } from "node:crypto";
import type { Clock } from "../../platform/base/clock.ts";
import { rsaWeakness } from "../../platform/crypto/rsa.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { fetchKeySet, identityProviderUnavailable } from "./discovery.ts";

/** A public key of the issuer. */
export interface VerificationKey {
  readonly kid: string;
  readonly key: KeyObject;
  /** The algorithms that a signature by it may have (RFC 7518 section 3.1): its own `alg`, else those of its type. */
  readonly algorithms: readonly string[];
}

/** A key that is meant for signatures, and cannot be used. */
interface UnusableKey {
  readonly kid: string | undefined;
  readonly reason: string;
}

const rsaAlgorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
const curveAlgorithms: Readonly<Record<string, string>> = {
  "P-256": "ES256",
  "P-384": "ES384",
  "P-521": "ES512",
};

type Members = Readonly<Record<string, unknown>>;

/** Reads a member of a key set (RFC 7517 section 4); undefined if it is not meant for verifying signatures. */
function readKey(value: unknown): VerificationKey | UnusableKey | undefined {
  const jwk: Members = typeof value === "object" && value !== null ? { ...value } : {};
  const { use = "sig", key_ops: operations = ["verify"] } = jwk;
  if (use !== "sig" || !Array.isArray(operations) || !operations.includes("verify")) return undefined;
  const kid = typeof jwk["kid"] === "string" ? jwk["kid"] : undefined;
  if (kid === undefined) return { kid, reason: "must have a kid" };
  const possible = algorithmsOf(jwk);
  const algorithms = jwk["alg"] === undefined ? possible : possible.filter((alg) => alg === jwk["alg"]);
  if (algorithms.length === 0) return { kid, reason: "must be a key for one of RS, PS and ES" };
  const key = decoded(jwk);
  if (!key) return { kid, reason: "cannot be decoded" };
  const reason = jwk["kty"] === "RSA" ? rsaWeakness(key) : undefined;
  return reason === undefined ? { kid, key, algorithms } : { kid, reason };
}

/** The algorithms of the key's type and curve; none for keys of other types, symmetric ones among them. */
function algorithmsOf({ kty, crv }: Members): readonly string[] {
  if (kty === "RSA") return rsaAlgorithms;
  const algorithm = kty === "EC" && typeof crv === "string" ? curveAlgorithms[crv] : undefined;
  return algorithm === undefined ? [] : [algorithm];
}

/** The public key; undefined if its numbers are none, or name no point of its curve. */
function decoded({ kty, n, e, crv, x, y }: Members): KeyObject | undefined {
  try {
    return createPublicKey({ key: { kty, n, e, crv, x, y } as JsonWebKey, format: "jwk" });
  } catch {
    return undefined;
  }
}

export interface KeySet {
  /**
   * The key with this id, the same object until it changes; undefined if the issuer has none.
   * @throws unavailable if the id is not in the cache and the key set could not be fetched
   */
  key(kid: string): Promise<VerificationKey | undefined>;
}

/** Milliseconds after which the key set is fetched again, while the cached one is still used. */
const freshMs = 5 * 60 * 1000;
/** Milliseconds after which callers wait for that fetch. */
const staleMs = 10 * 60 * 1000;
/** Milliseconds between fetches that unknown key ids cause. */
const cooldownMs = 30_000;
/** Milliseconds from a failed fetch to the next one, if there is no cached key set. */
const retryMs = 1_000;

interface CachedKeySet {
  /** All keys as they were read, by their text; undefined: not a key for access tokens. */
  readonly read: ReadonlyMap<string, VerificationKey | UnusableKey | undefined>;
  /** The usable keys, by key id. */
  readonly keys: ReadonlyMap<string, VerificationKey>;
  /** The keys that were passed over, by their text. */
  readonly unusable: ReadonlyMap<string, UnusableKey>;
  readonly at: number;
}

export function createKeySet({
  issuer,
  clock,
  logger,
}: {
  readonly issuer: string;
  readonly clock: Clock;
  readonly logger: Logger;
}): KeySet {
  let cached: CachedKeySet | undefined;
  let fetching: Promise<void> | undefined;
  /** The last fetch, whether it failed or not. */
  let last: { readonly at: number; readonly failure?: unknown } | undefined;

  /** Whether so much time has passed; true also if the clock was set back, which must not stop fetching. */
  const hasPassed = (since: number, ms: number) => clock.now() < since || clock.now() - since >= ms;

  /** Never rejects: the result is in `last`. */
  async function fetchOnce(): Promise<void> {
    try {
      const before = cached?.unusable;
      cached = { ...readKeys(await fetchKeySet(issuer), cached), at: clock.now() };
      last = { at: clock.now() };
      // Each key is logged once, and not at each fetch.
      for (const [text, { kid, reason }] of cached.unusable) {
        if (!before?.has(text)) logger.warn({ issuer, kid, reason }, "A key of the issuer is passed over");
      }
    } catch (failure) {
      last = { at: clock.now(), failure };
      logger.warn({ err: failure, issuer }, "The issuer's key set could not be fetched");
    } finally {
      fetching = undefined;
    }
  }

  function refresh(): Promise<void> {
    fetching ??= fetchOnce();
    return fetching;
  }

  /** Fetches the key set if there is none, or if it is too old. */
  async function keepFresh(): Promise<void> {
    if (!cached) {
      if (fetching || !last || hasPassed(last.at, retryMs)) await refresh();
      return;
    }
    if (!hasPassed(cached.at, freshMs) || (last && !hasPassed(last.at, cooldownMs))) return;
    const renewal = refresh();
    if (hasPassed(cached.at, staleMs)) await renewal;
  }

  return {
    async key(kid) {
      await keepFresh();
      if (cached && !cached.keys.has(kid) && (fetching || !last || hasPassed(last.at, cooldownMs)))
        await refresh();
      const found = cached?.keys.get(kid);
      if (!found && (!cached || last?.failure !== undefined)) {
        throw identityProviderUnavailable(issuer, last?.failure);
      }
      return found;
    },
  };
}

/** Reads the keys that were published. A key that has not changed keeps its object. */
function readKeys(published: readonly unknown[], before: CachedKeySet | undefined): Omit<CachedKeySet, "at"> {
  const texts = published.map((jwk) => JSON.stringify(jwk));
  const read = new Map(texts.map((text) => [text, before?.read.get(text) ?? readKey(JSON.parse(text))]));
  const usable = [...read.values()].filter((key) => key !== undefined && "key" in key);
  const keys = new Map<string, VerificationKey>();
  const unusable = new Map<string, UnusableKey>();
  for (const [text, key] of read) {
    if (key === undefined) continue;
    // A key id that occurs twice does not identify a key.
    const isAmbiguous = usable.filter(({ kid }) => kid === key.kid).length > 1;
    if ("reason" in key) unusable.set(text, key);
    else if (isAmbiguous) unusable.set(text, { kid: key.kid, reason: "must not share its kid" });
    else keys.set(key.kid, key);
  }
  return { read, keys, unusable };
}
