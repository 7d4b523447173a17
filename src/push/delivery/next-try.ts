/** When the rest of a chunk's devices is tried again, and when the chunk is given up. */
import type { TakenChunk } from "./chunk-repository.ts";
import { type DeliveryRules, type Random, withJitter } from "./delivery-rules.ts";
import type { Sending } from "./send-chunk.ts";
import type { NextTry } from "./settle-chunk.ts";

export function nextTry(
  chunk: Pick<TakenChunk, "retries" | "reason" | "failures" | "ageMs">,
  {
    stop,
    tally,
    pausedMs,
  }: Pick<Sending, "stop" | "pausedMs"> & { tally: Pick<Sending["tally"], "afterMs" | "reason"> },
  devicesLeft: number,
  rules: DeliveryRules,
  random: Random,
): NextTry {
  const { retries, reason } = chunk;
  if (devicesLeft === 0) return { afterMs: 0, retries, reason, giveUp: false };
  const soonest = Math.max(pausedMs, tally.afterMs);
  if (stop === "refused") return { afterMs: soonest, retries, reason: tally.reason ?? reason, giveUp: false };
  // The stop has another cause than an error, so it does not count as a retry.
  if (stop !== undefined && stop !== "unavailable")
    return { afterMs: soonest, retries, reason, giveUp: false };
  // If the provider was failing before, the failure is not about this chunk. If it begins to fail with this chunk,
  // the chunk may be the cause, so the retry counts.
  const counted = stop === undefined || chunk.failures === 0 ? retries + 1 : retries;
  const backoff = Math.min(rules.longestRetryMs, rules.firstRetryMs * 2 ** Math.max(0, counted - 1));
  const isOld = reason !== null && chunk.ageMs > rules.giveUpMs;
  return {
    afterMs: Math.max(soonest, withJitter(backoff, random)),
    retries: counted,
    reason: tally.reason ?? reason,
    giveUp: isOld || counted > rules.maxRetries,
  };
}
