/** Looks, for all chunks that this process is sending, whether each is still to be sent: one query for all of them. */
import { sql } from "drizzle-orm";
import { type Database, rows } from "../../platform/database/database.ts";

/**
 * Why a chunk is not to be sent any further. `lost`: another worker has it. `notification`: paused, cancelled or
 * expired. `provider`: the fleet has paused it.
 */
export type Halt = "lost" | "notification" | "provider";

interface Watched {
  readonly id: number;
  readonly attempt: number;
  halt(why: Halt): void;
}

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
    const found = await rows<{ id: string; attempt: number; halt: Halt | null }>(
      this.#db,
      sql`
        select c.id::text, c.attempt, case
          when c.state <> 'SENDING' then 'lost'
          when n.state in ('PAUSED', 'CANCELLED') or n.expires_at <= now() then 'notification'
          when p.paused_until > now() then 'provider' end as halt
        from push.delivery_chunks c join push.notifications n on n.id = c.notification_id
          left join push.provider_paces p on p.provider = c.provider
        where c.id = any(${`{${watched.map(({ id }) => id).join(",")}}`}::bigint[])`,
    );
    const byId = new Map(found.map((row) => [Number(row.id), row]));
    for (const one of watched) {
      const row = byId.get(one.id);
      const why = row?.attempt === one.attempt ? row.halt : "lost";
      if (why !== null) one.halt(why);
    }
  }
}
