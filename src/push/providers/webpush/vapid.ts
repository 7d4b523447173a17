/**
 * VAPID (RFC 8292): a JWT for each origin of a Web Push service, used for hours, as signing costs most of a message.
 */
import { SignJWT } from "jose";
import { type Clock, unixSeconds } from "../../../platform/base/clock.ts";
import type { Fields } from "../../../platform/http2/connection.ts";
import type { VapidKey } from "../../provider-key-settings.ts";

/** Seconds for which a JWT is valid. RFC 8292 allows 24 hours; less leaves room for clocks that differ. */
const validSeconds = 43_200;
/** Seconds for which a JWT is used. */
const usedSeconds = 21_600;

/** How soon a device is to be woken (RFC 8030 section 5.3). */
export type Urgency = "high" | "normal";

/** The JWT of one origin, signed by one key. */
export class Vapid {
  readonly #subject: string;
  readonly #key: VapidKey;
  readonly #clock: Clock;
  readonly #origin: string;
  #current:
    | { readonly issuedAt: number; readonly fields: Promise<Readonly<Record<Urgency, Fields>>> }
    | undefined;

  constructor(subject: string, key: VapidKey, origin: string, clock: Clock) {
    this.#subject = subject;
    this.#key = key;
    this.#origin = origin;
    this.#clock = clock;
  }

  /** The fields that requests of an urgency to the origin share, the same until there is another JWT. */
  async fields(urgency: Urgency): Promise<Fields> {
    const now = unixSeconds(this.#clock);
    const age = now - (this.#current?.issuedAt ?? Number.NEGATIVE_INFINITY);
    if (this.#current === undefined || age < 0 || age >= usedSeconds) {
      this.#current = { issuedAt: now, fields: this.#sign(now) };
    }
    return (await this.#current.fields)[urgency];
  }

  async #sign(now: number): Promise<Readonly<Record<Urgency, Fields>>> {
    const { privateKey, publicKey } = this.#key;
    const jwt = await new SignJWT()
      .setProtectedHeader({ alg: "ES256", typ: "JWT" })
      .setAudience(this.#origin)
      .setSubject(this.#subject)
      .setExpirationTime(now + validSeconds)
      .sign(privateKey);
    const { protocol, host } = new URL(this.#origin);
    const fieldsOf = (urgency: Urgency): Fields => [
      ...[":method", "POST", ":scheme", protocol.slice(0, -1), ":authority", host],
      ...["urgency", urgency, "content-encoding", "aes128gcm", "content-type", "application/octet-stream"],
      ...["authorization", `vapid t=${jwt}, k=${publicKey}`],
    ];
    return { high: fieldsOf("high"), normal: fieldsOf("normal") };
  }
}
