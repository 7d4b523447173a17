/** What becomes of the devices of a chunk that are left after an attempt: parts of it that go on, wait or end. */
import { randomUUID } from "node:crypto";
import type { SharedNotification, TakenChunk } from "./chunk-repository.ts";
import type { NextTry } from "./next-try.ts";

/** `SENDING`: messages have no response yet. `PENDING`: the devices wait. `DONE`, `DEAD`: they do not. */
type PartState = "SENDING" | "PENDING" | "DONE" | "DEAD";

/** Devices that go on together, as a chunk. */
export interface Part extends NextTry {
  readonly state: PartState;
  /** The job that may take the chunk; null: it has ended, or is parked until its notification is resumed. */
  readonly jobId: string | null;
}

/** A part that has ended without devices. */
export const nothingLeft: Part = {
  state: "DONE",
  jobId: null,
  devices: [],
  afterMs: 0,
  services: [],
  endsWithResponse: false,
  isRetry: false,
  retries: 0,
  reason: null,
  giveUp: false,
};

/** A chunk whose notification is missing is treated as if it was cancelled. */
export const missingNotification: SharedNotification = { state: "CANCELLED", isExpired: true };

/** What becomes of the devices that are left. One part if the notification has ended. */
export function partsAfter(
  { isRetry }: TakenChunk,
  triesLeft: readonly NextTry[],
  notification: SharedNotification | undefined,
): Part[] {
  if (triesLeft.length === 0 || !notification) return [];
  const tries = triesLeft.map((next) => ({ ...next, isRetry: isRetry || next.isRetry }));
  if (notification.state === "CANCELLED" || notification.isExpired)
    return [{ ...nothingLeft, devices: tries.flatMap((next) => next.devices) }];
  if (notification.state === "PAUSED") return parked(tries);
  return tries.map((next) =>
    next.giveUp
      ? { ...next, state: "DEAD", jobId: null }
      : { ...next, state: "PENDING", jobId: randomUUID() },
  );
}

/**
 * The parts that wait until the notification is resumed: the devices that were not tried, and apart from them the
 * retries.
 */
function parked(tries: readonly NextTry[]): Part[] {
  const kinds = Map.groupBy(tries, ({ isRetry }) => isRetry);
  return [...kinds].map(([isRetry, some]) => ({
    ...nothingLeft,
    state: "PENDING",
    isRetry,
    devices: some.flatMap((next) => next.devices),
    reason: some.findLast((next) => next.reason !== null)?.reason ?? null,
  }));
}
