/** Looks, for all chunks that this process is sending, whether each is still to be sent: one query for all of them. */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { nullable, oneOf } from "../../platform/database/readers.ts";
import { computed, prepared, rows, selection } from "../../platform/database/statements.ts";
import { deliveryChunks, notifications, providerPaces } from "../schema.ts";

/**
 * Why a chunk is not to be sent any further. `lost`: another worker has it. `notification`: paused, cancelled or
 * expired. `provider`: the fleet has paused it.
 */
export type Halt = (typeof halts)[number];
const halts = ["lost", "notification", "provider"] as const;

interface Watched {
  readonly id: number;
  readonly attempt: number;
  halt(why: Halt): void;
}

const c = names(deliveryChunks, "c");
const n = names(notifications, "n");
const p = names(providerPaces, "p");

const looked = selection({
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

const selectLooked = prepared(
  ["ids"],
  ({ ids }) => sql`
    select ${looked}
    from ${deliveryChunks} c join ${notifications} n on ${n.id} = ${c.notificationId}
      left join ${providerPaces} p on ${p.provider} = ${c.provider}
    where ${c.id} = any(${ids}::bigint[])`,
);

export class Watch {
  readonly #db: Database;
  readonly #everyMs: number;
  readonly #watched = new Set<Watched>();
  #timer: NodeJS.Timeout | undefined;

  constructor(db: Database, everyMs: number) {
    this.#db = db;
    this.#everyMs = everyMs;
  }

  /** Calls `halt` as soon as the chunk is not to be sent any further. @returns ends the watch */
  add(watched: Watched): () => void {
    this.#watched.add(watched);
    this.#timer ??= this.#nextLook();
    return () => void this.#watched.delete(watched);
  }

  #nextLook(): NodeJS.Timeout {
    return setTimeout(() => void this.#lookAndGoOn(), this.#everyMs);
  }

  async #lookAndGoOn(): Promise<void> {
    // While the database is away there is nothing new to see: what is being sent was to be sent.
    await this.#look().catch(() => undefined);
    this.#timer = this.#watched.size > 0 ? this.#nextLook() : undefined;
  }

  async #look(): Promise<void> {
    const watched = [...this.#watched];
    if (watched.length === 0) return;
    const ids = `{${watched.map(({ id }) => id).join(",")}}`;
    const found = await rows(this.#db, looked, selectLooked({ ids }));
    const byId = new Map(found.map((row) => [row.id, row]));
    for (const one of watched) {
      const row = byId.get(one.id);
      const why = row?.attempt === one.attempt ? row.halt : "lost";
      if (why !== null) one.halt(why);
    }
  }
}
