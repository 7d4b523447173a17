/**
 * The key set of an issuer, found by discovery (OpenID Connect Discovery section 4) and cached in memory. It is
 * fetched once at a time; tokens with unknown key ids cause a fetch at most every `cooldownMs`; and the cached keys
 * stay valid while the issuer is unavailable.
 */
import type { Clock } from "../../platform/base/clock.ts";
import { unavailable } from "../../platform/base/errors.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { fetchKeySet } from "./discovery.ts";
import { readKey, type UnusableKey, type VerificationKey } from "./verification-key.ts";

export interface KeySet {
  /**
   * Returns the key with this id; undefined if the issuer has none. It is the same object until the key changes.
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
        throw unavailable("The identity provider", last?.failure);
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
