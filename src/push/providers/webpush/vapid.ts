/**
 * VAPID (RFC 8292): a JWT for each origin of a Web Push service, used for hours, as signing costs most of a message.
 */
import { createPrivateKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import type { WebPushSettings } from "../../provider-settings.ts";

/** Seconds for which a JWT is valid. RFC 8292 allows 24 hours; less leaves room for clocks that differ. */
const validSeconds = 43_200;
/** Seconds for which a JWT is used. */
const usedSeconds = 21_600;

/** The JWT of one origin. */
export class Vapid {
  readonly #settings: WebPushSettings;
  readonly #key: KeyObject;
  readonly #clock: Clock;
  readonly #origin: string;
  #current: { readonly issuedAt: number; readonly header: Promise<string> } | undefined;

  constructor(settings: WebPushSettings, key: KeyObject, origin: string, clock: Clock) {
    this.#settings = settings;
    this.#key = key;
    this.#origin = origin;
    this.#clock = clock;
  }

  /** The value of the `Authorization` header. */
  authorization(): Promise<string> {
    const now = unixSeconds(this.#clock);
    const age = now - (this.#current?.issuedAt ?? Number.NEGATIVE_INFINITY);
    if (this.#current === undefined || age < 0 || age >= usedSeconds) {
      this.#current = { issuedAt: now, header: this.#sign(now) };
    }
    return this.#current.header;
  }

  async #sign(now: number): Promise<string> {
    const { subject, vapidPublicKey } = this.#settings;
    const jwt = await new SignJWT()
      .setProtectedHeader({ alg: "ES256", typ: "JWT" })
      .setAudience(this.#origin)
      .setSubject(subject)
      .setExpirationTime(now + validSeconds)
      .sign(this.#key);
    return `vapid t=${jwt}, k=${vapidPublicKey}`;
  }
}

/** The private key as a KeyObject of Node. */
export function vapidKey({ vapidPrivateKey: d, vapidPublicKey }: WebPushSettings): KeyObject {
  const point = Buffer.from(vapidPublicKey, "base64url");
  const x = point.subarray(1, 33).toString("base64url");
  const y = point.subarray(33).toString("base64url");
  return createPrivateKey({ key: { kty: "EC", crv: "P-256", x, y, d }, format: "jwk" });
}
