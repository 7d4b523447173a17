/**
 * The relay of a transactional outbox: events are delivered at least once and in order, all of them by one process at a
 * time, or, in parts, those of each subject. A batch of events goes through these states:
 *
 * | State | Condition |
 * |---|---|
 * | waiting | The events are in the outbox, and no process has the lease of their part |
 * | leased | This process has the lease; no other one reads the part |
 * | read | Found by the transaction that took the lease: its commit came after theirs, so the standbys have both |
 * | published | Every subscriber was given them; in order, as many as the lease leaves time for |
 * | confirmed | Every subscriber's flush has resolved since |
 * | deleted | They are in the outbox no more, and the lease is released |
 *
 * After a failure in any state, or once the lease has run out, the events wait again. No database connection is held
 * while a subscriber works.
 */
import { randomUUID } from "node:crypto";
import { and, gte, sql } from "drizzle-orm";
import { traceHeaders } from "../base/tracing.ts";
import { arrayLiteral, type Database, type Reads } from "../database/database.ts";
import type { CloudEvent } from "./cloud-event.ts";
import { isKnown } from "./outbox.ts";
import type { OutboxStart } from "./outbox-start.ts";
import { type OutboxTable, partOf } from "./outbox-table.ts";
import { type RelayLease, type RelayLeaseTable, takeLease } from "./relay-leases.ts";
import { deliveryTimeoutMs, type Subscriber } from "./subscribers.ts";

export interface RelaySettings {
  readonly db: Database;
  readonly outbox: OutboxTable;
  readonly leases: RelayLeaseTable;
  /** `source` of the events: a URI reference that names the service. */
  readonly source: string;
  /** Each event is delivered to all of them, one after the other. */
  readonly subscribers: readonly Subscriber[];
  /** Resolves once these events may be delivered, because every reader sees what they report; at once unless given. */
  readonly mayDeliver?: (events: readonly CloudEvent[]) => Promise<void>;
  /** Where looks into the outbox begin; at the lowest position unless given. */
  readonly start?: OutboxStart;
  /** Whether events are divided into parts by their subjects. If not, all events are delivered in order. */
  readonly inParts?: boolean;
}

export const batchSize = 100;

interface WaitingEvent {
  readonly position: number;
  readonly event: CloudEvent;
}

/**
 * Delivers the oldest batch of the outbox or of a part. @returns the number of events; 0 while another has the lease
 */
export async function relayOnce(
  settings: RelaySettings,
  part = 0,
  holder: string = randomUUID(),
): Promise<number> {
  const { db, outbox, subscribers, leases } = settings;
  await flush(subscribers);
  const leased = await takeLease(db, leases, { part, holder }, (tx) => read(tx, settings, part));
  if (!leased) return 0;
  try {
    const published = await publish(settings, leased);
    if (published.length === 0) return 0;
    await flush(subscribers);
    const isDelivered = sql`${outbox.position} = any(${arrayLiteral(published)}::bigint[])`;
    await db.delete(outbox).where(isDelivered);
    return published.length;
  } finally {
    await leased.release();
  }
}

/** Resolves once every subscriber has what it was given. Rejects also while one of them can be given nothing. */
export async function flush(subscribers: readonly Subscriber[]): Promise<void> {
  for (const subscriber of subscribers) await subscriber.flush?.();
}

/** The query for the oldest events of an outbox, or of a part of it, that all subscribers know. */
export function oldestEvents(
  db: Reads,
  { outbox, subscribers, start, inParts = false }: RelaySettings,
  part: number,
) {
  const ofPart = partOf(outbox.subject);
  return db
    .select()
    .from(outbox)
    .where(
      and(
        // The index of parts has this order. With `=` the planner could choose to read all parts by their positions.
        inParts ? sql`${ofPart} between ${part}::int and ${part}::int` : undefined,
        gte(outbox.position, start?.position ?? 0),
        isKnown(outbox, subscribers),
      ),
    )
    .orderBy(...(inParts ? [ofPart] : []), outbox.position)
    .limit(batchSize);
}

async function read(tx: Reads, settings: RelaySettings, part: number): Promise<readonly WaitingEvent[]> {
  const { source } = settings;
  const found = await oldestEvents(tx, settings, part);
  return found.map(({ position, id, type, subject, data, occurredAt, traceparent, tracestate }) => ({
    position,
    event: {
      ...{ specversion: "1.0", id, source, type, subject, time: occurredAt.toISOString() },
      ...{ datacontenttype: "application/json", data, ...traceHeaders({ traceparent, tracestate }) },
    },
  }));
}

/** Delivers as many events of a batch as the lease leaves time for. @returns their positions */
async function publish(
  { subscribers, mayDeliver }: RelaySettings,
  { found, endsAt }: RelayLease<readonly WaitingEvent[]>,
): Promise<number[]> {
  if (found.length === 0) return [];
  await mayDeliver?.(found.map(({ event }) => event));
  // A delivery and a flush that each last until their timeouts still end before the lease does.
  const latest = endsAt - 2 * deliveryTimeoutMs;
  const published: number[] = [];
  for (const { position, event } of found) {
    if (performance.now() > latest) break;
    for (const subscriber of subscribers) await subscriber.deliver(event);
    published.push(position);
  }
  if (published.length === 0)
    throw new Error("the database took so long to find the events that no time was left to deliver them");
  return published;
}
