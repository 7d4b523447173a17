/**
 * The provider token of APNs: a JWT, renewed every 20 to 60 minutes, that all processes make the same, as its time of
 * issue is the beginning of the current half hour.
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
   * A new JWT, issued now, as APNs has refused this one.
   * @returns the same one if it was issued within the last 20 minutes, as Apple would reject a newer one
   */
  async renew(refused: string): Promise<string> {
    const current = this.#current;
    const jwt = await current?.jwt;
    // Another message has renewed it already.
    if (current === undefined || jwt !== refused || current !== this.#current) return this.jwt();
    const now = unixSeconds(this.#clock);
    if (now - current.issuedAt < renewalSeconds) return refused;
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
