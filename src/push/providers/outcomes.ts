/**
 * From responses to outcomes: what all providers share. A reason never has the provider's error message, which may
 * quote the token.
 */
import type { Clock } from "../../platform/base/clock.ts";
import type { ExchangeResult, NoResponse, PeerResponse } from "../../platform/http2/exchange.ts";
import type { Outcome } from "./provider.ts";

export const sent: Outcome = { kind: "sent" };

/** A browser shows something for each message that wakes it. */
export const notForBrowsers: Outcome = {
  kind: "failed",
  isUnasked: true,
  reason: "a silent message is not for browsers",
};

/** Milliseconds until a retry without `Retry-After`. FCM requires at least 10 s. */
export const retryMs = 10_000;
/** Milliseconds until a retry without `Retry-After`, if the quota is exceeded. */
export const quotaMs = 60_000;
/** Longest `Retry-After` that is respected, in milliseconds. */
const maxRetryAfterMs = 86_400_000;

/** Whether the status shows that the message was accepted. */
export function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** The result, or no response if a 4xx response did not arrive whole: half a body must neither remove nor pause. */
export function whole(result: ExchangeResult): ExchangeResult {
  if (!result.responded || result.isComplete) return result;
  if (result.status < 400 || result.status === 429 || result.status >= 500) return result;
  return { responded: false, cause: "aborted", reason: `${result.status}, cut short` };
}

/** The body as JSON; undefined if it is not JSON: gateways respond with HTML. */
export function jsonOf(response: PeerResponse): unknown {
  try {
    return JSON.parse(response.text());
  } catch {
    return undefined;
  }
}

/** A member of a value that may be an object. */
export function member(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}

/** The items of a value that may be an array. */
export function items(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** A provider's error code, such as `UNREGISTERED`; undefined if the value does not have the syntax of one. */
export function codeIn(value: unknown): string | undefined {
  return typeof value === "string" && /^[A-Za-z][A-Za-z_]{0,63}$/.test(value) ? value : undefined;
}

/** The reason of an outcome, such as "404 UNREGISTERED". */
export function reasonOf(status: number, code?: string): string {
  return code === undefined ? String(status) : `${status} ${code}`;
}

/** `Retry-After` (RFC 9110 section 10.2.3) in milliseconds, at most a day; undefined if there is none. */
export function retryAfterMs(response: PeerResponse, clock: Clock): number | undefined {
  const text = response.header("retry-after");
  if (text === undefined) return undefined;
  const ms = /^\d{1,10}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - clock.now();
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), maxRetryAfterMs);
}

/** The outcome of a 429 response, whosever quota it names: whose it is shows in what other messages meet. */
export function throttledOutcome(response: PeerResponse, clock: Clock, reason: string): Outcome {
  return { kind: "retry", isThrottled: true, afterMs: retryAfterMs(response, clock) ?? quotaMs, reason };
}

/** The outcome of a 5xx response: a retry of this message. Delivery takes a streak for an unavailable provider. */
export function serverFailureOutcome(response: PeerResponse, clock: Clock, code?: string): Outcome {
  const afterMs = retryAfterMs(response, clock) ?? retryMs;
  return { kind: "retry", afterMs, reason: reasonOf(response.status, code) };
}

/** Milliseconds by which our clock may differ from the provider's: the `Date` of a response is one of seconds. */
const maxSkewMs = 60_000;

/** The outcome of a response that refuses our credentials. @param isOfTime whether it names a time that we have signed */
export function refusedOutcome(
  response: PeerResponse,
  clock: Clock,
  reason: string,
  isOfTime = false,
): Extract<Outcome, { kind: "refused" }> {
  const skewMs = Math.abs(Date.parse(response.header("date") ?? "") - clock.now());
  return { kind: "refused", ...((isOfTime || skewMs > maxSkewMs) && { isOfTime: true }), reason };
}

/** The outcome without a whole response. The message may have arrived; a repeat replaces it on the device. */
export function noResponseOutcome({ cause, reason }: NoResponse): Outcome {
  if (cause === "unreachable") return { kind: "unavailable", hasNoResponse: true, reason };
  if (cause === "aborted") return { kind: "retry", afterMs: retryMs, reason };
  return { kind: "retry", hasNoResponse: true, afterMs: retryMs, reason };
}
