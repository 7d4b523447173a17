/** The keys of the issuer, fetched in the background, so that requests seldom wait for them. */
import { createLocalJWKSet, errors, type JSONWebKeySet, type JWSHeaderParameters } from "jose";
import { type Members, UnavailableError } from "./auth-server.ts";

/** Milliseconds after which the set is fetched again, while the old one serves. */
const freshMs = 5 * 60_000;
/**
 * Milliseconds after which a request waits for that, unless the latest fetch has failed: a withdrawn key is not believed
 * after a quiet night.
 */
const staleMs = 10 * 60_000;
/** Milliseconds between fetches that unknown key ids cause, or that have failed. */
const cooldownMs = 30_000;
/** The same while there is no set at all. */
const firstCooldownMs = 1_000;

interface Dependencies {
  readonly ask: () => Promise<Members>;
  /** Milliseconds since any moment; grows as time passes, whatever the clock is set to. */
  readonly monotonic: () => number;
  readonly onUnavailable: (error: UnavailableError) => void;
}

/**
 * @returns finds the key of a token's header, for jose. An old set serves while a fetch fails.
 * @throws UnavailableError if the key is unknown and could not be looked for, or if the issuer's key cannot be used
 * @throws JWKSNoMatchingKey if it was looked for
 */
export function createKeySet({ ask, monotonic, onUnavailable }: Dependencies) {
  let set: { readonly find: ReturnType<typeof createLocalJWKSet>; readonly at: number } | undefined;
  let fetching: Promise<void> | undefined;
  let last: { readonly at: number; readonly failure?: UnavailableError } | undefined;

  /** Never rejects: the result is in `last`. */
  async function fetchOnce(): Promise<void> {
    const at = monotonic();
    try {
      const body = await ask();
      if (!isKeySet(body)) throw new UnavailableError("The key set of the issuer has no keys", {});
      set = { find: createLocalJWKSet(body), at };
      last = { at };
    } catch (cause) {
      const failure =
        cause instanceof UnavailableError
          ? cause
          : new UnavailableError("The key set of the issuer cannot be used", { cause });
      last = { at, failure };
      // While there is an old set, no request fails that would tell.
      if (set) onUnavailable(failure);
    } finally {
      fetching = undefined;
    }
  }

  /** Milliseconds until the next fetch may begin. */
  function restOfCooldown(): number {
    return last ? last.at + (set ? cooldownMs : firstCooldownMs) - monotonic() : 0;
  }

  function refresh(): Promise<void> | undefined {
    if (!fetching && restOfCooldown() > 0) return undefined;
    fetching ??= fetchOnce();
    return fetching;
  }

  async function keepFresh(): Promise<void> {
    const age = set ? monotonic() - set.at : 0;
    if (age < freshMs) return;
    const refreshing = refresh();
    if (age >= staleMs && !last?.failure) await refreshing;
  }

  async function find(header: JWSHeaderParameters) {
    try {
      return await set?.find(header);
    } catch (cause) {
      if (cause instanceof errors.JWKSNoMatchingKey) return undefined;
      // A key that is none, or two with one id: the token is not to blame.
      throw new UnavailableError("The key set of the issuer has a key that cannot be used", { cause });
    }
  }

  return async (header: JWSHeaderParameters) => {
    // Without an id, any key that fits would be tried.
    if (typeof header.kid !== "string") throw new errors.JWKSNoMatchingKey();
    const before = set;
    await keepFresh();
    const known = await find(header);
    if (known) return known;
    if (set === before) await refresh();
    // Nobody has looked since the request came: the key may be there by now.
    if (set === before)
      throw new UnavailableError(last?.failure?.message ?? "A token names a key that was not there lately", {
        cause: last?.failure?.cause,
        retryAfterSeconds: Math.ceil(Math.max(restOfCooldown(), 1) / 1000),
      });
    const found = await find(header);
    if (!found) throw new errors.JWKSNoMatchingKey();
    return found;
  };
}

function isKeySet(body: Members): body is Members & JSONWebKeySet {
  return Array.isArray(body["keys"]) && body["keys"].length > 0;
}
