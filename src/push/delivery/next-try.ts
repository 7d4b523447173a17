/** When the devices that a chunk has left are tried again, and when that is given up. */
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
  // Somebody or something stopped it: that is no error of its own.
  if (stop !== undefined && stop !== "unavailable")
    return { afterMs: soonest, retries, reason, giveUp: false };
  // A provider that was failing before says nothing about this chunk; one that begins to fail with it may do so
  // because of it.
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
