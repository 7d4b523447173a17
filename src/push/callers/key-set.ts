/**
 * The key set of an issuer, found by discovery (OpenID Connect Discovery section 4) and kept in memory. Owns
 * when it is fetched: one fetch at a time, never again at once because somebody sends tokens with invented key
 * ids, and what is known stays good while the issuer is away.
 */
import { type CryptoKey, importJWK } from "jose";
import type { Clock } from "../../platform/base/clock.ts";
import { unavailable } from "../../platform/base/errors.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { fetchKeySet, type PublishedKey } from "./discovery.ts";

export interface KeySet {
  /**
   * The key of this id; undefined if the issuer has none. The same object for as long as the key is the same.
   * @throws unavailable where nobody can say
   */
  key(kid: string): Promise<CryptoKey | undefined>;
}

/** Milliseconds after which a key set is fetched again, while the one before is still used. */
const freshMs = 5 * 60 * 1000;
/** And after which the new one is waited for. */
const staleMs = 10 * 60 * 1000;
/** Between fetches for the sake of ids that are not known. */
const cooldownMs = 30_000;
/** Between a fetch that failed and the next one, where there is no key set at all. */
const retryMs = 1_000;

interface Known {
  readonly keys: ReadonlyMap<string, { readonly jwk: string; readonly key: CryptoKey }>;
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
  let known: Known | undefined;
  let fetching: Promise<void> | undefined;
  /** The last fetch, of whatever outcome. */
  let last: { readonly at: number; readonly failure?: unknown } | undefined;

  /** A clock that was set back must not stop the clockwork. */
  const hasPassed = (since: number, ms: number) => clock.now() < since || clock.now() - since >= ms;

  /** Never rejects: what came of it is in `last`. */
  async function fetchOnce(): Promise<void> {
    try {
      known = { keys: await imported(await fetchKeySet(issuer), known), at: clock.now() };
      last = { at: clock.now() };
    } catch (failure) {
      last = { at: clock.now(), failure };
      logger.warn({ err: failure, issuer }, "the issuer's key set could not be fetched");
    } finally {
      fetching = undefined;
    }
  }

  function refresh(): Promise<void> {
    fetching ??= fetchOnce();
    return fetching;
  }

  /** Sees to it that there is a key set, and that it is not too old. */
  async function keepFresh(): Promise<void> {
    if (!known) {
      if (fetching || !last || hasPassed(last.at, retryMs)) await refresh();
      return;
    }
    if (!hasPassed(known.at, freshMs) || (last && !hasPassed(last.at, cooldownMs))) return;
    const renewal = refresh();
    if (hasPassed(known.at, staleMs)) await renewal;
  }

  return {
    async key(kid) {
      await keepFresh();
      if (known && !known.keys.has(kid) && (fetching || !last || hasPassed(last.at, cooldownMs)))
        await refresh();
      const found = known?.keys.get(kid);
      if (!found && (!known || last?.failure !== undefined)) {
        throw unavailable("The identity provider", last?.failure);
      }
      return found?.key;
    },
  };
}

/** The keys by id; those that were there before stay the same objects. */
async function imported(
  published: readonly PublishedKey[],
  before: Known | undefined,
): Promise<Known["keys"]> {
  const entries = published.map(async ({ kid, jwk }) => {
    const text = JSON.stringify(jwk);
    const same = before?.keys.get(kid);
    if (same?.jwk === text) return [kid, same] as const;
    const key = await importJWK(jwk, "RS256");
    if (key instanceof Uint8Array) throw new Error(`the key ${kid} is not a public key`);
    return [kid, { jwk: text, key }] as const;
  });
  return new Map(await Promise.all(entries));
}
