/**
 * Events leave through a transactional outbox: they are written with the change that they tell of, and the
 * relay delivers them afterwards, at least once and in order. One process relays at a time; if it dies,
 * another goes on where it was.
 */
import { setTimeout } from "node:timers/promises";
import { sql } from "drizzle-orm";
import type { Logger } from "pino";
import { type Loop, startLoop } from "../base/loop.ts";
import { type Database, rows } from "../database/database.ts";

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
  /** No other process uses the database: it needs no lock, and its one connection is not held meanwhile. */
  readonly alone?: boolean;
}

/** Events delivered in one transaction. */
const batchSize = 100;
/** Milliseconds between tries, at most. */
const longestPauseMs = 15_000;
/** Milliseconds that a subscriber may take over one event: the relay holds a transaction meanwhile. */
const deliveryMs = 5_000;

/** Each event to all of them, one after the other. */
export function deliverToAll(subscribers: readonly Deliver[]): Deliver {
  return async (event) => {
    for (const deliver of subscribers) await deliver(event);
  };
}

/** A subscriber that has its time; where it takes longer the event is delivered again. */
export function limited(deliver: Deliver): Deliver {
  return async (event) => {
    const done = new AbortController();
    const late = setTimeout(deliveryMs, undefined, { signal: done.signal }).then(
      () => Promise.reject(new Error(`a subscriber took too long over ${event.type}`)),
      () => undefined,
    );
    await Promise.race([deliver(event), late]).finally(() => done.abort());
  };
}

/**
 * Without a broker events are delivered inside the process: each is a line of the log, the audit trail.
 * @param alarming types of events that are warnings
 */
export function logEvents(logger: Logger, alarming: readonly string[] = []): Deliver {
  return async ({ id, type, subject, time, data }) => {
    const level = alarming.includes(type) ? "warn" : "info";
    logger[level]({ event: { id, type, subject, time, data } }, "event");
  };
}

/** Delivers what is in the outbox now, up to a batch. @returns how many; 0 too while another process relays */
export async function relayOnce(settings: RelaySettings): Promise<number> {
  const { db, schema, alone = false } = settings;
  if (alone) return relayBatch(db, settings);
  return db.transaction(async (tx) => {
    const [lock] = await rows<{ mine: boolean }>(
      tx,
      sql`select pg_try_advisory_xact_lock(hashtext(${`${schema}.outbox`})) as mine`,
    );
    return lock?.mine ? relayBatch(tx, settings) : 0;
  });
}

/** An event in the outbox. */
interface Pending extends Pick<CloudEvent, "id" | "type" | "subject" | "data" | "time"> {
  readonly position: number;
}

async function relayBatch(db: Database, { schema, source, deliver }: RelaySettings): Promise<number> {
  const outbox = sql`${sql.identifier(schema)}.outbox`;
  const [outgoing] = await rows<{ events: Pending[] }>(
    db,
    // In one row: a row for each costs the driver several times as much.
    sql`
      select coalesce(json_agg(event order by event.position), '[]') as events
      from (
        select position, id, type, subject, data,
          to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as time
        from ${outbox} order by position limit ${batchSize}
      ) as event`,
  );
  const pending = outgoing?.events ?? [];
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
    await db.execute(sql`delete from ${outbox} where position = any(${delivered}::bigint[])`);
  }
  return pending.length;
}

/** Relays until stopped. A delivery that fails is logged and tried again, less often the longer it goes on. */
export function startRelay(settings: RelaySettings): Loop {
  const { logger, intervalMs = 1000 } = settings;
  let failures = 0;
  return startLoop(async () => {
    try {
      const delivered = await relayOnce(settings);
      failures = 0;
      if (delivered === batchSize) return 0;
    } catch (err) {
      logger.warn({ err }, "events could not be delivered; they are tried again");
      failures += 1;
    }
    return Math.min(intervalMs * 2 ** failures, longestPauseMs);
  });
}
