/**
 * From answers to outcomes: what all providers have in common. A reason is made of fixed words, a status and
 * a code of the provider's, never of its prose, which may quote the token.
 */
import type { Clock } from "../../platform/base/clock.ts";
import type { Outcome } from "./provider.ts";
import type { NoResponse, ProviderResponse } from "./transport/http2-exchange.ts";

export const sent: Outcome = { kind: "sent" };

/** Milliseconds after which a message is tried again where the provider does not say. FCM asks for at least 10 s. */
export const retryMs = 10_000;
/** Milliseconds after which there may be quota again. */
export const quotaMs = 60_000;
/** A provider that wants to be left alone for longer is asked again after this. */
const maxRetryAfterMs = 3_600_000;

/** A body as JSON; undefined if it is not: gateways on the way answer in HTML. */
export function jsonOf(answer: ProviderResponse): unknown {
  try {
    return JSON.parse(answer.text());
  } catch {
    return undefined;
  }
}

/** A member of what may be an object. */
export function member(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

/** The items of what may be an array. */
export function items(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** A provider's code, such as `UNREGISTERED`; undefined of anything that is not surely one. */
export function codeIn(value: unknown): string | undefined {
  return typeof value === "string" && /^[A-Za-z][A-Za-z_]{0,63}$/.test(value) ? value : undefined;
}

/** As in "404 UNREGISTERED". */
export function reasonOf(status: number, code?: string): string {
  return code === undefined ? String(status) : `${status} ${code}`;
}

/** `Retry-After` (RFC 9110 section 10.2.3) in milliseconds, at most an hour; undefined if there is none. */
export function retryAfterMs(answer: ProviderResponse, clock: Clock): number | undefined {
  const text = answer.header("retry-after");
  if (text === undefined) return undefined;
  const ms = /^\d{1,10}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - clock.now();
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), maxRetryAfterMs);
}

/**
 * An answer of the provider's own failure, 5xx. Whatever it says, this message had bad luck: large providers answer
 * a few so while they work. That it is away shows in a row of them.
 */
export function ofServerFailure(answer: ProviderResponse, clock: Clock, code?: string): Outcome {
  const afterMs = retryAfterMs(answer, clock) ?? retryMs;
  return { kind: "retry", afterMs, reason: reasonOf(answer.status, code) };
}

/** No answer. The message may have arrived: sent again, it collapses with the first one on the device. */
export function ofNoResponse({ cause, reason }: NoResponse): Outcome {
  if (cause === "unreachable") return { kind: "unavailable", reason };
  return { kind: "retry", afterMs: retryMs, reason };
}
