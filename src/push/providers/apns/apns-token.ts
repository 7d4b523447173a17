/**
 * The provider token of APNs: a JWT that all requests carry. Apple wants the same token from all processes, renewed
 * every 20 to 60 minutes, and rejects more frequent renewals. All processes make the same token without coordination,
 * as its time of issue is the beginning of the current half hour.
 */
import { createPrivateKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import type { ApnsSettings } from "../../provider-settings.ts";

const windowSeconds = 1800;
/** Clocks differ: no process may issue a token whose time of issue is in the future for another, or for Apple. */
const skewSeconds = 60;
/** The shortest time between two tokens that Apple accepts. */
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
    // If the clock was set back, a token with a time of issue in the future must not be used.
    if (current && now < current.usableUntil && now >= current.issuedAt) return current.jwt;
    const issuedAt = windowOf(now);
    return this.#issue(issuedAt, issuedAt + windowSeconds + skewSeconds);
  }

  /**
   * A new JWT, issued now, because APNs rejected this one as expired. Other processes do not follow.
   * @returns undefined if this process renewed within the last 20 minutes: then the cause is another one
   */
  async renew(expired: string): Promise<string | undefined> {
    const current = this.#current;
    const jwt = await current?.jwt;
    // Another message has renewed it already.
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

/** The beginning of the half hour that contained the time one minute ago. */
function windowOf(now: number): number {
  return Math.floor((now - skewSeconds) / windowSeconds) * windowSeconds;
}
