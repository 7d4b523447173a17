/**
 * The relay of a transactional outbox. An event is written in the transaction of its change, and the relay delivers it
 * afterwards, at least once and in order; if a process dies, another one continues at the same position.
 *
 * One process relays an outbox at a time. With `inParts` events are divided by subject into eight parts, each relayed
 * by one process at a time, so a part that is held up delays no other. No database connection is held while a
 * subscriber works. An event is delivered only when the synchronous standbys have it: nobody learns of an event that a
 * failover could lose.
 */
import { sql } from "drizzle-orm";
import type { Logger } from "pino";
import { isDatabaseAway } from "../base/database-errors.ts";
import { type Loop, startLoop } from "../base/loop.ts";
import { Reminders } from "../base/reminders.ts";
import { traceHeaders } from "../base/tracing.ts";
import { arrayLiteral, type Database, type Executor } from "../database/database.ts";
import { names } from "../database/sql/names.ts";
import { jsonObject, listOf, text } from "../database/sql/readers.ts";
import { computed, isoTime, rows, selection } from "../database/sql/statements.ts";
import type { CloudEvent } from "./cloud-event.ts";
import { processed } from "./event-spans.ts";
import { type DeliverableTypes, isKnown } from "./outbox.ts";
import { OutboxStart } from "./outbox-start.ts";
import { type OutboxTable, outboxParts, partOf } from "./outbox-table.ts";
import { PartLeases, type RelayLeaseTable } from "./relay-leases.ts";

/** A receiver of events, which gets them in order. If a call rejects, the batch is delivered again later. */
export interface Subscriber extends DeliverableTypes {
  /** Delivers one event. */
  deliver(event: CloudEvent): Promise<void> | void;
  /**
   * Resolves once the events that were delivered so far have arrived. It is called before a batch and after it, and
   * rejects also while nothing can be delivered.
   */
  flush?(): Promise<void>;
}

interface RelaySettings {
  readonly db: Database;
  readonly outbox: OutboxTable;
  readonly leases: RelayLeaseTable;
  /** `source` of the events: a URI reference that names the service. */
  readonly source: string;
  /** Each event is delivered to all of them, one after the other. */
  readonly subscribers: readonly Subscriber[];
  readonly logger: Logger;
  /** Resolves once these events may be delivered, because every reader sees what they report; at once unless given. */
  readonly mayDeliver?: (events: readonly CloudEvent[]) => Promise<void>;
  /** Called with the number of events that were delivered and removed from the outbox. */
  readonly delivered?: (count: number) => void;
  readonly intervalMs?: number;
  /** Where looks into the outbox begin; a start of its own unless given. */
  readonly start?: OutboxStart;
  /** Whether no other process uses the database, so that the relay needs no lease; false unless given. */
  readonly isOnlyProcess?: boolean;
  /** Whether events are divided into parts. If not, all events are delivered in order; if so, those of one subject. */
  readonly inParts?: boolean;
}

/** Milliseconds between looks at an outbox that was empty. */
const usualIntervalMs = 1_000;
/** The most events of a batch. */
const batchSize = 100;
/** Milliseconds after which a batch ends: the event that is being delivered is its last one. */
const batchMs = 3_000;
/** The longest pause between tries, in milliseconds. */
const longestPauseMs = 15_000;
/** The timeout of a subscriber for one event, and for a flush, in milliseconds: the relay holds its lease meanwhile. */
const deliveryTimeoutMs = 4_000;

/** A subscriber whose deliveries have a timeout, after which the event is delivered again. */
export function subscriberWithTimeout(deliver: (event: CloudEvent) => Promise<void>): Subscriber {
  const problem = (event: CloudEvent) => `a subscriber took too long for ${event.type}`;
  return {
    deliver: (event) =>
      withDeliveryTimeout(
        processed("in-process", event, () => deliver(event)),
        problem(event),
      ),
  };
}

/**
 * Rejects with the problem after the timeout of a delivery. Each call has a timer of its own, as an aborted signal
 * would make an error with its stack for each event.
 */
export function withDeliveryTimeout<T>(work: Promise<T>, problem: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(problem)), deliveryTimeoutMs);
    work.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/**
 * Writes each event as a line of a log, the audit trail, whatever the log level. If nobody reads that log, the events
 * wait in the outbox.
 * @param warningTypes types of events that are logged as warnings
 */
export function logEvents(logger: Logger, warningTypes: readonly string[] = []): Subscriber {
  const log = logger.child({}, { level: "info" });
  return {
    deliver({ id, type, subject, time, data }) {
      log[warningTypes.includes(type) ? "warn" : "info"](
        { event: { id, type, subject, time, data } },
        "Event",
      );
    },
    // A batch is written only when no line waits before it, so that no event is dropped, and at most a batch waits.
    flush: () => withDeliveryTimeout(flushed(log), "nobody reads the log of events"),
  };
}

/** Resolves once the operating system has all lines so far: in the file, or in the pipe. */
function flushed(log: Logger): Promise<void> {
  return new Promise((resolve, reject) => {
    log.flush((error) => (error ? reject(error) : resolve()));
  });
}

/**
 * Delivers the oldest batch of the outbox, or of a part of it.
 * @returns the number of events; also 0 while another process relays
 */
export async function relayOnce(
  settings: RelaySettings,
  part = 0,
  leases = new PartLeases(settings.leases, part),
): Promise<number> {
  const { db, isOnlyProcess: alone = false } = settings;
  await flush(settings);
  if (alone) return relayBatch(settings, await oldestBatch(settings, part));
  // An event may be visible though no standby has confirmed its commit. The commit of the lease comes after the commits
  // of the events that are found here, so it is confirmed after them. The events are found by a statement of their own,
  // as another process may have had the lease while the first statement waited.
  const lease = await leases.take(db, (tx) => oldestBatch(settings, part, tx));
  if (!lease) return 0;
  try {
    return await relayBatch(settings, lease.found, lease.endsAt);
  } finally {
    await lease.release();
  }
}

async function flush({ subscribers }: Pick<RelaySettings, "subscribers">): Promise<void> {
  for (const subscriber of subscribers) await subscriber.flush?.();
}

/**
 * @param batch as {@link oldestBatch} finds it
 * @param leaseEndsAt by performance.now(); Infinity: no other process relays
 */
async function relayBatch(
  settings: RelaySettings,
  batch: readonly PendingEvent[],
  leaseEndsAt = Number.POSITIVE_INFINITY,
): Promise<number> {
  const { subscribers, mayDeliver } = settings;
  if (batch.length > 0) await mayDeliver?.(batch.map(({ event }) => event));
  // A delivery and a flush that each last until their timeouts still end before the lease does.
  const latest = leaseEndsAt - 2 * deliveryTimeoutMs;
  const end = Math.min(performance.now() + batchMs, latest);
  const delivered: number[] = [];
  if (batch.length > 0 && performance.now() > latest)
    throw new Error("the database took so long to find the events that no time was left to deliver them");
  for (const { position, event } of batch) {
    if (performance.now() > end) break;
    for (const subscriber of subscribers) await subscriber.deliver(event);
    delivered.push(position);
  }
  await flush({ subscribers });
  if (delivered.length > 0) await removeDelivered(settings, delivered);
  return delivered.length;
}

/** Removes delivered events from the outbox. */
async function removeDelivered({ db, outbox }: RelaySettings, positions: readonly number[]): Promise<void> {
  await db.execute(
    sql`delete from ${outbox} where ${names(outbox).position} = any(${arrayLiteral(positions)}::bigint[])`,
  );
}

/** An event of the outbox, and its position there. */
interface PendingEvent {
  readonly position: number;
  readonly event: CloudEvent;
}

/** The oldest events of an outbox, or of a part of it. */
async function oldestBatch(
  settings: RelaySettings,
  part: number,
  db: Executor = settings.db,
): Promise<PendingEvent[]> {
  const { outbox, subscribers, source, inParts, start } = settings;
  const { position, id, type, subject, data, occurredAt, traceparent, tracestate } = names(outbox);
  const time = isoTime(occurredAt);
  const pending = selection({
    position,
    id,
    type,
    subject,
    data: computed(jsonObject, data),
    time: computed(text, time),
    traceparent,
    tracestate,
  });
  // All events in one row: with a row for each, the driver takes several times as long.
  const batch = selection({
    events: computed(listOf(pending), sql`coalesce(json_agg(event order by event.${position}), '[]')`),
  });
  // The index of parts has this order. With `=` the planner could choose to read all parts by their positions.
  const isDue = sql`${position} >= ${start?.position ?? 0}::bigint and ${isKnown(outbox, subscribers)}`;
  const own = sql`
    where ${partOf(subject)} between ${part}::int and ${part}::int and ${isDue}
    order by ${partOf(subject)}, ${position}`;
  const all = sql`where ${isDue} order by ${position}`;
  const [found] = await rows(
    db,
    batch,
    sql`
      select ${batch}
      from (
        select ${pending} from ${outbox} ${inParts ? own : all} limit ${batchSize}
      ) as event`,
  );
  const common = { specversion: "1.0", source, datacontenttype: "application/json" } as const;
  return (found?.events ?? []).map(({ position, traceparent, tracestate, ...own }) => ({
    position,
    event: { ...common, ...own, ...traceHeaders({ traceparent, tracestate }) } satisfies CloudEvent,
  }));
}

/** A part of the events, and when it is relayed next. */
interface Part {
  readonly number: number;
  readonly leases: PartLeases;
  failures: number;
  /** The moment of the next try, by `performance.now`. */
  dueAt: number;
}

/** Relays until stopped. A failed delivery is logged and retried, with a pause that grows with each failure. */
export function startRelay(given: RelaySettings): Loop {
  const start = given.start ?? new OutboxStart();
  const settings = { ...given, start };
  const { logger, delivered: report, intervalMs = usualIntervalMs, inParts = false } = settings;
  const count = inParts ? outboxParts : 1;
  const parts: Part[] = Array.from({ length: count }, (_, number) => ({
    number,
    leases: new PartLeases(settings.leases, number),
    failures: 0,
    dueAt: 0,
  }));
  let hasUnknown = false;
  /** When failed looks in a row are logged again; mostly they fail because a subscriber is not there. */
  let reminders = new Reminders();
  const warn = (err: unknown) => logger.warn({ err }, "Events could not be delivered and will be retried");

  /** @returns the error, if it failed */
  async function relay(part: Part): Promise<unknown> {
    let pauseMs = intervalMs;
    let failure: unknown;
    try {
      const delivered = await relayOnce(settings, part.number, part.leases);
      part.failures = 0;
      report?.(delivered);
      if (delivered === batchSize) pauseMs = 0;
    } catch (error) {
      failure = error;
      // A database that was away is used again as soon as it is back; the wait for it is a pause of its own.
      part.failures = isDatabaseAway(error) ? 0 : part.failures + 1;
      pauseMs = Math.min(intervalMs * 2 ** part.failures, longestPauseMs);
    }
    part.dueAt = performance.now() + pauseMs;
    return failure;
  }

  const isThere = () =>
    flush(settings).then(
      () => true,
      () => false,
    );

  /**
   * Whether no event can be delivered, by one look in place of a lease for each part. A failure is left to the parts.
   * @throws an error that means that the database is unavailable, which each part would meet as well
   */
  async function isEmpty(): Promise<boolean> {
    const { db, outbox, subscribers } = settings;
    const found = await start.look(db, outbox, subscribers).catch((error: unknown) => {
      if (isDatabaseAway(error)) throw error;
      return undefined;
    });
    if (!found || found.isAnyKnown) return false;
    if (found.isAny && !hasUnknown)
      logger.warn(
        "Events of a newer version wait in the outbox until a process of that version delivers them",
      );
    hasUnknown = found.isAny;
    return true;
  }

  /** @returns the first error: what fails for one part mostly fails for all of them, and is logged once */
  async function relayDue(stopping: AbortSignal): Promise<unknown> {
    let first: unknown;
    for (const part of parts.filter(({ dueAt }) => dueAt <= performance.now())) {
      if (stopping.aborted) break;
      const failure = await relay(part);
      first ??= failure;
      // If nothing can be delivered, each further part would take as long to fail, and hold its lease meanwhile.
      if (failure !== undefined && !(await isThere())) break;
    }
    return first;
  }

  return startLoop(async (stopping) => {
    try {
      const isIdle = await isEmpty();
      if (!isIdle) await flush(settings);
      reminders = new Reminders();
      if (isIdle) return intervalMs;
    } catch (err) {
      if (reminders.isFailureDue(err)) warn(err);
      // A part that has failed may have failed for this reason: it is due as soon as the database and the subscribers
      // are there.
      for (const part of parts) Object.assign(part, { failures: 0, dueAt: 0 });
      return intervalMs;
    }
    const err = await relayDue(stopping);
    if (err !== undefined) warn(err);
    // The processes begin with different parts.
    parts.unshift(...parts.splice(Math.floor(Math.random() * count)));
    return Math.max(0, Math.min(...parts.map(({ dueAt }) => dueAt)) - performance.now());
  });
}
