/**
 * Events leave through a transactional outbox: they are written with the change that they tell of, and the
 * relay delivers them afterwards, at least once and in order. One process relays at a time; if it dies,
 * another goes on where it was.
 */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import { type Database, rows } from "./database.ts";
import type { Logger } from "./telemetry.ts";

/** A CloudEvent 1.0 whose data is a message of proto/, in its JSON form. */
export interface CloudEvent {
  readonly specversion: "1.0";
  readonly id: string;
  readonly source: string;
  readonly type: string;
  readonly subject: string;
  /** RFC 3339. */
  readonly time: string;
  readonly datacontenttype: "application/json";
  readonly data: Readonly<Record<string, unknown>>;
}

/** Takes one event; if it throws, the event and all after it are delivered again later. */
export type Deliver = (event: CloudEvent) => Promise<void>;

interface RelaySettings {
  readonly db: Database;
  /** PostgreSQL schema that holds the outbox. */
  readonly schema: string;
  /** `source` of the events: the issuer's URI. */
  readonly source: string;
  readonly deliver: Deliver;
  readonly logger: Logger;
  readonly intervalMs?: number;
}

/** Events delivered in one transaction. */
const batchSize = 100;

/** Delivers what is in the outbox now, up to a batch. @returns how many; 0 too while another process relays */
export async function relayOnce({ db, schema, source, deliver }: RelaySettings): Promise<number> {
  const outbox = sql`${sql.identifier(schema)}.outbox`;
  return db.transaction(async (tx) => {
    const [lock] = await rows<{ mine: boolean }>(
      tx,
      sql`select pg_try_advisory_xact_lock(hashtext(${`${schema}.outbox`})) as mine`,
    );
    if (!lock?.mine) return 0;
    const pending = await rows<{
      position: string;
      id: string;
      type: string;
      subject: string;
      data: Record<string, unknown>;
      time: string;
    }>(
      tx,
      sql`
        select position::text, id::text, type, subject, data,
          to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as time
        from ${outbox} order by ${outbox}.position limit ${batchSize}`,
    );
    for (const { id, type, subject, data, time } of pending) {
      await deliver({
        specversion: "1.0",
        id,
        source,
        type,
        subject,
        time,
        datacontenttype: "application/json",
        data,
      });
    }
    if (pending.length > 0) {
      const delivered = `{${pending.map(({ position }) => position).join(",")}}`;
      await tx.execute(sql`delete from ${outbox} where position = any(${delivered}::bigint[])`);
    }
    return pending.length;
  });
}

/** Relays until stopped. A delivery that fails is logged and tried again. */
export function startRelay(settings: RelaySettings): { stop(): Promise<void> } {
  const { logger, intervalMs = 1000 } = settings;
  const stopping = new AbortController();

  async function relay(): Promise<void> {
    while (!stopping.signal.aborted) {
      const delivered = await relayOnce(settings).catch((err) => {
        logger.warn({ err }, "events could not be delivered; they are tried again");
        return 0;
      });
      if (delivered < batchSize) await pause(intervalMs, stopping.signal);
    }
  }
  const running = relay();
  return {
    async stop() {
      stopping.abort();
      await running;
    },
  };
}

/** Ends early when it is time to stop, which the loop sees for itself. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return setTimeout(ms, undefined, { signal, ref: false }).catch(() => undefined);
}
