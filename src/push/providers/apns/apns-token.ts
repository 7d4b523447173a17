/**
 * The provider token of APNs: a JWT that all requests carry. Apple wants one for a whole fleet, renewed every
 * 20 to 60 minutes, and refuses who renews more often. Machines agree without talking: the token's time of
 * issue is the beginning of the current half hour.
 */
import { createPrivateKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import type { ApnsSettings } from "../../provider-settings.ts";

const windowSeconds = 1800;
/** Clocks differ; none is to issue a token that to others, and to Apple, is of the future. */
const skewSeconds = 60;
/** Apple's least time between two tokens. */
const renewalSeconds = 1200;

interface ProviderToken {
  readonly issuedAt: number;
  /** Unix seconds. */
  readonly usableUntil: number;
  readonly jwt: Promise<string>;
}

export class ApnsToken {
  readonly #settings: ApnsSettings;
  readonly #key: KeyObject;
  readonly #clock: Clock;
  #current: ProviderToken | undefined;
  #renewedAt = Number.NEGATIVE_INFINITY;

  constructor(settings: ApnsSettings, clock: Clock) {
    this.#settings = settings;
    this.#key = createPrivateKey(settings.key);
    this.#clock = clock;
  }

  /** The JWT; at most 31 minutes old, or 51 after a renewal. */
  jwt(): Promise<string> {
    const now = unixSeconds(this.#clock);
    const current = this.#current;
    // A clock that was put back must not keep a token of the future.
    if (current && now < current.usableUntil && now >= current.issuedAt) return current.jwt;
    const issuedAt = windowOf(now);
    return this.#issue(issuedAt, issuedAt + windowSeconds + skewSeconds);
  }

  /**
   * A new JWT, as APNs took this one for expired; issued now, whatever the fleet does.
   * @returns undefined if that was tried within the last 20 minutes: then something else is wrong
   */
  async renew(expired: string): Promise<string | undefined> {
    const current = this.#current;
    const jwt = await current?.jwt;
    // Another message was faster.
    if (jwt !== expired || current !== this.#current) return this.jwt();
    const now = unixSeconds(this.#clock);
    if (now - this.#renewedAt < renewalSeconds) return undefined;
    this.#renewedAt = now;
    const next = windowOf(now) + windowSeconds;
    const successor = next - now < renewalSeconds ? next + windowSeconds : next;
    return this.#issue(now, successor + skewSeconds);
  }

  #issue(issuedAt: number, usableUntil: number): Promise<string> {
    const { keyId, teamId } = this.#settings;
    const jwt = new SignJWT()
      .setProtectedHeader({ alg: "ES256", kid: keyId })
      .setIssuer(teamId)
      .setIssuedAt(issuedAt)
      .sign(this.#key);
    this.#current = { issuedAt, usableUntil, jwt };
    return jwt;
  }
}

/** Beginning of the half hour, for a clock that is a minute late. */
function windowOf(now: number): number {
  return Math.floor((now - skewSeconds) / windowSeconds) * windowSeconds;
}
