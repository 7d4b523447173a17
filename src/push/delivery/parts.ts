/** What becomes of the devices of a chunk: those that are still being sent to, and those that are left after an attempt. */
import { wholeProvider } from "../queue/provider-rows.ts";
import type { Part } from "../queue/store-results.ts";
import type { TakenChunk } from "../queue/take-chunks.ts";
import type { NextTry } from "./next-try.ts";
import type { ServiceStates } from "./service-states.ts";

/** The shortest wait for services that cannot be sent to, in milliseconds: other messages are probing them. */
const probedMs = 500;

/** A chunk's own devices, as they are. */
export function own(
  { retries, reason }: Pick<TakenChunk, "retries" | "reason">,
  state: "TAKEN" | "READY" | "DONE",
  devices: readonly number[] = [],
): Part {
  return { state, devices, waitMs: 0, awaits: null, isRetry: false, retries, reason, startsAnew: false };
}

export function partsOf(tries: readonly NextTry[], states: Pick<ServiceStates, "pausedMs">): Part[] {
  return tries.map(({ devices, isRetry, retries, reason, services, afterMs, endsWithResponse, giveUp }) => {
    const ready = { ...own({ retries, reason }, "READY", devices), isRetry, startsAnew: services.length > 0 };
    if (giveUp) return { ...ready, state: "DEAD" };
    if (services.length > 0) {
      const pausedMs = Math.min(...services.map((service) => states.pausedMs(service)));
      // Nobody takes the chunks of a provider that is paused as a whole, so they need not wait.
      if (pausedMs > 0 && services.includes(wholeProvider)) return ready;
      return { ...ready, state: "WAITING", waitMs: Math.max(probedMs, pausedMs), awaits: "SERVICE" };
    }
    if (afterMs === 0) return ready;
    return { ...ready, state: "WAITING", waitMs: afterMs, awaits: endsWithResponse ? "RESPONSE" : null };
  });
}
