/**
 * Checks at an interval whether the chunks that this process is sending should still be sent, with one query. What a
 * check says is as old as the check's beginning, however late it is answered.
 */
import { sql } from "drizzle-orm";
import { untraced } from "../../platform/base/tracing.ts";
import { arrayLiteral, type Executor } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { nullable, oneOf } from "../../platform/database/readers.ts";
import { computed, prepared, rows, selection } from "../../platform/database/statements.ts";
import { deliveryChunks, notifications, providerStates } from "../schema.ts";

/**
 * Why the sending of a chunk must stop. `lost`: another worker has the chunk. `notification`: it is paused, cancelled
 * or expired. `provider`: a process has paused it for all.
 */
export type Halt = (typeof halts)[number];
const halts = ["lost", "notification", "provider"] as const;

interface Watched {
  readonly id: number;
  readonly attempt: number;
  /** @param asOf when the check began that found it sendable, by `performance.now()` */
  confirm(asOf: number): void;
  halt(why: Halt): void;
}

const c = names(deliveryChunks, "c");
const n = names(notifications, "n");
const p = names(providerStates, "p");

const watchedChunk = selection({
  id: c.id,
  attempt: c.attempt,
  halt: computed(
    nullable(oneOf(halts)),
    sql`case
      when ${c.state} <> 'SENDING' then 'lost'
      when ${n.state} in ('PAUSED', 'CANCELLED') or ${n.expiresAt} <= now() then 'notification'
      when ${p.pausedUntil} > now() then 'provider' end`,
  ),
});

const selectWatched = prepared(
  ["ids"],
  ({ ids }) => sql`
    select ${watchedChunk}
    from ${deliveryChunks} c join ${notifications} n on ${n.id} = ${c.notificationId}
      left join ${providerStates} p on ${p.provider} = ${c.provider} and ${p.service} = ''
    where ${c.id} = any(${ids}::bigint[])`,
);

export class Watch {
  readonly #db: Executor;
  readonly #everyMs: number;
  readonly #watched = new Set<Watched>();
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Executor, everyMs: number) {
    this.#db = db;
    this.#everyMs = everyMs;
  }

  /** Calls `confirm` or `halt` with each check, as it finds. @returns ends the watch */
  add(watched: Watched): () => void {
    this.#watched.add(watched);
    this.#timer ??= this.#schedule();
    return () => void this.#watched.delete(watched);
  }

  #schedule(): NodeJS.Timeout {
    // It is for all chunks, and no part of the trace of the first one.
    return untraced(() => setTimeout(() => void this.#poll(), this.#everyMs));
  }

  async #poll(): Promise<void> {
    // A check that fails says nothing: who is not confirmed for too long begins no message.
    await this.#check().catch(() => undefined);
    this.#timer = this.#watched.size > 0 ? this.#schedule() : undefined;
  }

  async #check(): Promise<void> {
    const watched = [...this.#watched];
    const asOf = performance.now();
    if (watched.length === 0) return;
    const ids = arrayLiteral(watched.map(({ id }) => id));
    const found = await rows(this.#db, watchedChunk, selectWatched({ ids }));
    const byId = new Map(found.map((row) => [row.id, row]));
    for (const one of watched) {
      const row = byId.get(one.id);
      const why = row?.attempt === one.attempt ? row.halt : "lost";
      if (why === null) one.confirm(asOf);
      else one.halt(why);
    }
  }
}
