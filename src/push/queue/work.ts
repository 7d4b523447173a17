/** The kinds of work of the push service, which the workers of a process are woken for. */
import type { WakeUps } from "../../platform/base/loop.ts";

/** `ranges`: ranges to plan. `chunks`: chunks to send. `follow`: chunks to resume or drop, and replays. */
export type Work = "ranges" | "chunks" | "follow";

export type PushWakeUps = Pick<WakeUps<Work>, "wake">;
