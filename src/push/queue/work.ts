/** The kinds of work of the push service, which the workers of a process are woken for. */
import type { WakeUps } from "../../platform/base/worker.ts";

/**
 * `ranges`: ranges to plan. `chunks`: chunks to send. `returned`: chunks that were planned some time ago can be taken
 * again, so that takers look from the start. `follow`: chunks to resume or drop, and replays.
 */
export type Work = "ranges" | "chunks" | "returned" | "follow";

export type PushWakeUps = Pick<WakeUps<Work>, "wake">;
