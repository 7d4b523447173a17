/**
 * Checks at an interval whether the chunks that this process is sending should still be sent, with one query for all of
 * them. The result of a check is as old as the check's beginning, however late the database responds.
 */
import { sql } from "drizzle-orm";
import { untraced } from "../../platform/base/tracing.ts";
import { arrayLiteral, type Executor } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { nullable, oneOf, text } from "../../platform/database/sql/readers.ts";
import { computed, prepared, rows, selection } from "../../platform/database/sql/statements.ts";
import { isWholeProvider } from "../queue/provider-rows.ts";
import { deliveryChunks, notifications, providerStates } from "../schema.ts";

/** The reasons to stop that a check can find. */
const checkedReasons = ["lost", "notification", "provider"] as const;

/**
 * Why a chunk was not sent to its end. `lost`: another worker has the chunk. `notification`: it is paused, cancelled or
 * expired. `provider`: it is paused. `long`: the chunk takes longer than `maxSendingMs`, so its results are stored in
 * between. `ending`: the process stops. `database`: the rate limiter could not reach the database. `overdue`: a message
 * has never got a response.
 */
export type StopReason = (typeof checkedReasons)[number] | "long" | "ending" | "database" | "overdue";

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

const c = names(deliveryChunks, "c");
const n = names(notifications, "n");
const p = names(providerStates, "p");

const checkedChunk = selection({
  id: c.id,
  attempt: computed(nullable(text), c.attempt),
  reason: computed(
    nullable(oneOf(checkedReasons)),
    sql`case
      when ${c.state} <> 'TAKEN' then 'lost'
      when ${n.state} in ('PAUSED', 'CANCELLED') or ${n.expiresAt} <= now() then 'notification'
      when ${p.pausedUntil} > now() then 'provider' end`,
  ),
});

const selectChecked = prepared(
  ["ids"],
  ({ ids }) => sql`
    select ${checkedChunk}
    from ${deliveryChunks} c join ${notifications} n on ${n.id} = ${c.notificationId}
      left join ${providerStates} p on ${isWholeProvider(p, c.provider)}
    where ${c.id} = any(${ids}::bigint[])`,
);

export class SendabilityCheck {
  readonly #db: Executor;
  readonly #everyMs: number;
  readonly #chunks = new Set<CheckedChunk>();
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Executor, everyMs: number) {
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
    const ids = arrayLiteral(chunks.map(({ id }) => id));
    const found = await rows(this.#db, checkedChunk, selectChecked({ ids }));
    const byId = new Map(found.map((row) => [row.id, row]));
    for (const chunk of chunks) {
      const row = byId.get(chunk.id);
      const reason = row?.attempt === chunk.attempt ? row.reason : "lost";
      if (reason === null) chunk.confirm(asOf);
      else chunk.stop(reason);
    }
  }
}
