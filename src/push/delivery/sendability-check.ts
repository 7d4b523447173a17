/**
 * Checks at an interval whether the chunks that this process is sending should still be sent, with one query for all.
 */
import { and, eq, lte, sql } from "drizzle-orm";
import { untraced } from "../../platform/base/tracing.ts";
import { arrayLiteral, type Reads } from "../../platform/database/database.ts";
import { isPausedAt, wholeProvider } from "../queue/provider-rows.ts";
import { deliveryChunks, notifications, providerStates } from "../schema.ts";

/**
 * Why a chunk was not sent to its end. `lost`: another worker has the chunk. `notification`: it is paused, cancelled or
 * expired. `provider`: it is paused. `long`: the chunk takes longer than `maxSendingMs`, so its results are stored in
 * between. `rate`: its notification has a limit of its own, which lets it go on later. `ending`: the process stops.
 * `database`: the rate limiter could not reach the database. `overdue`: a message has never got a response.
 */
export type StopReason =
  | ("lost" | "notification" | "provider")
  | ("long" | "rate" | "ending" | "database" | "overdue");

/** A chunk that is being sent. */
interface CheckedChunk {
  readonly id: number;
  /** The attempt that has taken it. */
  readonly attempt: string;
  /** The chunk is sendable. @param asOf when the check began that found so, by `performance.now()` */
  confirm(asOf: number): void;
  /** The chunk is to be sent no more. */
  stop(reason: StopReason): void;
}

export class SendabilityCheck {
  readonly #db: Reads;
  readonly #everyMs: number;
  readonly #chunks = new Set<CheckedChunk>();
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Reads, everyMs: number) {
    this.#db = db;
    this.#everyMs = everyMs;
  }

  /** Adds a chunk: each check calls its `confirm` or its `stop`. @returns removes the chunk from the checks */
  add(chunk: CheckedChunk): () => void {
    this.#chunks.add(chunk);
    this.#timer ??= this.#schedule();
    return () => void this.#chunks.delete(chunk);
  }

  #schedule(): NodeJS.Timeout {
    // A check is for all chunks, and no part of the trace of the first one.
    return untraced(() => setTimeout(() => void this.#poll(), this.#everyMs));
  }

  async #poll(): Promise<void> {
    // A check that fails shows nothing: a chunk that is not confirmed for too long begins no message.
    await this.#check().catch(() => undefined);
    this.#timer = this.#chunks.size > 0 ? this.#schedule() : undefined;
  }

  async #check(): Promise<void> {
    const chunks = [...this.#chunks];
    const asOf = performance.now();
    if (chunks.length === 0) return;
    const found = await this.#states(chunks.map(({ id }) => id));
    const byId = new Map(found.map((row) => [row.id, row]));
    for (const chunk of chunks) {
      const row = byId.get(chunk.id);
      if (row?.attempt !== chunk.attempt || row.state !== "TAKEN") chunk.stop("lost");
      else if (row.isOver || row.notification === "PAUSED" || row.notification === "CANCELLED") {
        chunk.stop("notification");
      } else if (row.isPaused) chunk.stop("provider");
      else chunk.confirm(asOf);
    }
  }

  #states(ids: readonly number[]) {
    const { id, attempt, state, notificationId, provider } = deliveryChunks;
    const pausedUntil = sql`${providerStates.pausedUntil}`;
    const isProvider = and(eq(providerStates.provider, provider), eq(providerStates.service, wholeProvider));
    return this.#db
      .select({
        ...{ id, attempt, state, notification: notifications.state },
        isOver: lte(notifications.expiresAt, sql`now()`).mapWith(Boolean),
        isPaused: sql`coalesce(${isPausedAt(pausedUntil, sql`now()`)}, false)`.mapWith(Boolean),
      })
      .from(deliveryChunks)
      .innerJoin(notifications, eq(notifications.id, notificationId))
      .leftJoin(providerStates, isProvider)
      .where(sql`${id} = any(${arrayLiteral(ids)}::bigint[])`);
  }
}
