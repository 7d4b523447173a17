/**
 * VAPID (RFC 8292): a JWT for each origin of a Web Push service, used for hours, as signing costs most of a message.
 */
import { createPrivateKey, type KeyObject } from "node:crypto";
import { SignJWT } from "jose";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import type { Fields } from "../../../platform/http2/connection.ts";
import { vapidPublicOf } from "../../provider-key-settings.ts";
import type { WebPushSettings } from "../../provider-settings.ts";

/** Seconds for which a JWT is valid. RFC 8292 allows 24 hours; less leaves room for clocks that differ. */
const validSeconds = 43_200;
/** Seconds for which a JWT is used. */
const usedSeconds = 21_600;

/** A private key as a KeyObject of Node, and its public half as it is sent. */
interface VapidKey {
  readonly privateKey: KeyObject;
  readonly publicKey: string;
}

/** The JWT of one origin, signed by one key. */
export class Vapid {
  readonly #subject: string;
  readonly #key: VapidKey;
  readonly #clock: Clock;
  readonly #origin: string;
  #current: { readonly issuedAt: number; readonly fields: Promise<Fields> } | undefined;

  constructor(subject: string, key: VapidKey, origin: string, clock: Clock) {
    this.#subject = subject;
    this.#key = key;
    this.#origin = origin;
    this.#clock = clock;
  }

  /** The fields that all requests to the origin share, the same until there is another JWT. */
  fields(): Promise<Fields> {
    const now = unixSeconds(this.#clock);
    const age = now - (this.#current?.issuedAt ?? Number.NEGATIVE_INFINITY);
    if (this.#current === undefined || age < 0 || age >= usedSeconds) {
      this.#current = { issuedAt: now, fields: this.#sign(now) };
    }
    return this.#current.fields;
  }

  async #sign(now: number): Promise<Fields> {
    const { privateKey, publicKey } = this.#key;
    const jwt = await new SignJWT()
      .setProtectedHeader({ alg: "ES256", typ: "JWT" })
      .setAudience(this.#origin)
      .setSubject(this.#subject)
      .setExpirationTime(now + validSeconds)
      .sign(privateKey);
    const { protocol, host } = new URL(this.#origin);
    return [
      ...[":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host],
      ...["urgency", "high", "content-encoding", "aes128gcm", "content-type", "application/octet-stream"],
      ...["authorization", `vapid t=${jwt}, k=${publicKey}`],
    ];
  }
}

/** The keys of the settings, of which the first is tried first. */
export function vapidKeys({ vapidPrivateKeys }: WebPushSettings): readonly VapidKey[] {
  return vapidPrivateKeys.map((d) => {
    const publicKey = vapidPublicOf(d) ?? "";
    const point = Buffer.from(publicKey, "base64url");
    const x = point.subarray(1, 33).toString("base64url");
    const y = point.subarray(33).toString("base64url");
    const key = { kty: "EC", crv: "P-256", x, y, d };
    return { privateKey: createPrivateKey({ key, format: "jwk" }), publicKey };
  });
}
