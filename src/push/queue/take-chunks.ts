/**
 * Takes chunks of one provider, as many as there is room for, with their devices, in one statement; no two processes
 * take the same one. The database's clock decides what has expired.
 */
import { type SQL, sql } from "drizzle-orm";
import { sqlState } from "../../platform/base/database-errors.ts";
import type { TraceContext } from "../../platform/base/tracing.ts";
import { arrayLiteral, type Database, plannedEachTime } from "../../platform/database/database.ts";
import {
  boolean,
  checked,
  integer,
  listOf,
  names,
  nullable,
  number,
  oneOf,
  type Reader,
  text,
  UnexpectedValueError,
} from "../../platform/database/sql/readers.ts";
import {
  computed,
  epochMs,
  prepared,
  type RowOf,
  rawRows,
  selection,
} from "../../platform/database/sql/statements.ts";
import { isContent } from "../content/content.ts";
import type { ProviderName } from "../provider-settings.ts";
import { notificationUsers } from "../recipients-schema.ts";
import { deliveryChunks, devices, notifications, providerStates } from "../schema.ts";
import { testTurn, turnsOfRange } from "./chunk-states.ts";
import { giveBackUnknown } from "./give-back.ts";
import type { Processes } from "./processes.ts";
import { isPausedAt, isWholeProvider } from "./provider-rows.ts";
import { keepsOutcomes } from "./store-outcomes.ts";

/** A chunk that this process has taken. */
export interface TakenChunk extends RowOf<typeof takenFields> {
  /** When taking it began, by `performance.now()`: what is known of its notification is not older. */
  readonly asOf: number;
  readonly notificationId: string;
  /** Undefined: it is not to be sent, as it is paused or cancelled, or has expired. */
  readonly notification: ChunkNotification | undefined;
  /** The span in which the notification was accepted; undefined: it was not traced. */
  readonly trace: TraceContext | undefined;
  /** Its devices that can be sent to, in the chunk's order; none if it is not to be sent. */
  readonly devices: readonly TakenDevice[];
  /** Share of the rate limit that the provider gets at the moment, up to 1. */
  readonly share: number;
}

type ChunkNotification = RowOf<typeof notificationFields>;

/** A chunk that is to be sent. */
export interface SendableChunk extends TakenChunk {
  readonly notification: ChunkNotification;
}

export function isSendable(chunk: TakenChunk): chunk is SendableChunk {
  return chunk.notification !== undefined;
}

/**
 * A device that is still registered with the provider, by the user for whom it was planned, and has not expired. Where
 * users are named, its user still is: values of a user who was deleted are gone, also if he has come back.
 */
export type TakenDevice = RowOf<typeof deviceFields>;

/** The most chunks that are taken at once. */
export const mostChunks = 32;
/** Ids before the one that was taken last at which a taker looks again: their transactions may have ended later. */
const slack = 500;
/** Milliseconds after which a taker looks from the start, also where that is slow. */
const fromStartMs = 10_000;
/** Milliseconds of a slow take. */
const slowMs = 20;
/**
 * One message in so many is of the oldest chunks, whatever their turn: many small sends do not halt a large one, and it
 * does not halt them.
 */
const oldestEvery = 4;

/**
 * Where a taker begins to look. While some transaction is open for long, the entries of what was taken stay in the
 * indexes, and a take from the start reads all of them: once that is slow, takes begin a little before the last one.
 */
const atStart = () => ({ firstId: 0, turn: 1, retriedTurn: testTurn, oldestId: 0 });
type Start = ReturnType<typeof atStart>;

const chunk = names(deliveryChunks);
const c = names(deliveryChunks, "c");
const d = names(devices, "d");
const n = names(notifications, "n");
const p = names(providerStates, "p");
const u = names(notificationUsers, "u");

const reasons: Reader<Readonly<Record<string, number>>> = {
  read(value) {
    if (typeof value !== "object" || value === null) throw new UnexpectedValueError("an object", value);
    return Object.fromEntries(Object.entries(value).map(([reason, count]) => [reason, integer.read(count)]));
  },
};

const takenFields = {
  id: c.id,
  /** Random, made by each take: each later check and write of the chunk names it. */
  attempt: computed(text, c.attempt),
  turn: c.turn,
  /** Devices that it had left to send to. */
  left: computed(integer, sql`${c.planned} - ${c.sent} - ${c.failed} - ${c.dropped}`),
  /** How many of its other devices failed, by reason. */
  failures: computed(reasons, c.failures),
  retries: c.retries,
  /** Why the chunk was retried before; null if it was not. */
  reason: c.reason,
  /** Milliseconds since the chunk's first attempt after its last wait for the provider. */
  ageMs: computed(number, epochMs(sql`now() - ${c.firstAttemptAt}`)),
  /** Whether its devices were tried before. Then it comes after the chunks whose devices were not. */
  isRetry: c.isRetry,
};
const notificationFields = {
  id: n.id,
  title: n.title,
  message: n.message,
  image: n.image,
  /** Null: there is only what stands above. */
  content: computed(nullable(checked("a content", isContent)), n.content),
  priority: computed(oneOf(["high", "normal"]), n.priority),
  collapseId: n.collapseId,
  /** Milliseconds since the epoch. */
  expiresAt: computed(number, epochMs(n.expiresAt)),
  acceptedAt: computed(number, epochMs(n.acceptedAt)),
  /** Whether the chunk is all of it. */
  isOneChunk: computed(boolean, sql`${n.plannedAt} is not null and ${n.chunks} = 1`),
  /** Whether what becomes of each device is kept. */
  keepsOutcomes: computed(boolean, keepsOutcomes(n)),
  /** The most messages in a second, over all providers and processes; null: as many as the providers take. */
  maxPerSecond: n.maxPerSecond,
};
/** `is true` and `offset 0` keep PostgreSQL from reading all users of a notification, which may have 10,000. */
const ofNamed = sql`from ${notificationUsers} u
  where ${n.kind} = 'USERS' and ${u.userId} = ${d.userId} and (${u.notificationId} = ${n.id}) is true offset 0`;
const reader = selection({
  /** With its script; null: not known. */
  language: d.language,
  platform: d.platform,
  /** The user's values for the texts of a notification that has variables; null: it has none. */
  variables: computed(u.variables, sql`(select ${u.variables} ${ofNamed})`),
});
const deviceFields = {
  id: d.id,
  userId: d.userId,
  token: d.token,
  /** What decides which content it is sent. Null: all are sent the same, as by `/push`. */
  reader: computed(
    nullable(reader),
    sql`case when ${n.content} is not null then (select to_json(said) from (select ${reader}) as said) end`,
  ),
  /** Milliseconds since the epoch. */
  renewedAt: computed(number, epochMs(d.renewedAt)),
};

const taken = selection(takenFields);
const notification = selection(notificationFields);
const device = selection(deviceFields);
const mayBeSent = computed(
  boolean,
  sql`coalesce(${n.state} in ('PLANNING', 'SENDING') and ${n.expiresAt} > now(), false)`,
);
const rest = selection({
  notificationId: computed(text, sql`${c.notificationId}::text`),
  mayBeSent,
  traceparent: n.traceparent,
  tracestate: n.tracestate,
  share: computed(number, sql`coalesce(${p.share}, 1)::float8`),
  devices: computed(listOf(device), sql`coalesce(found.devices, '[]')`),
});

const isPaused = (provider: unknown) => sql`exists (
  select from ${providerStates} p where ${isWholeProvider(p, provider)} and ${isPausedAt(p.pausedUntil, sql`now()`)})`;
/** Its devices count as dropped: to take the chunk would make them remaining once more. */
const isCancelled = sql`coalesce(
  (select ${n.state} = 'CANCELLED' from ${notifications} n where ${n.id} = ${chunk.notificationId}), false)`;
const isReady = (provider: unknown) => sql`${chunk.provider} = ${provider} and ${chunk.state} = 'READY'`;
/** A candidate: its devices that are left are counted without reading their ids. */
const candidate = sql`${chunk.id} as chosen_id,
  ${chunk.planned} - ${chunk.sent} - ${chunk.failed} - ${chunk.dropped} as size`;
const lock = sql`for update skip locked`;

/**
 * A statement that takes the first candidates, until they have as many devices as there is room for. It is SQL text as
 * it locks what it finds in order, and takes and loads it at once. `offset 0` has each notification and each device
 * looked up by its id.
 */
const takeFirst = (
  candidates: unknown,
  { provider, messages, process }: Record<"provider" | "messages" | "process", unknown>,
) => sql`${sql.raw(plannedEachTime)}
  with candidates as materialized (${candidates}),
  chosen as (
    select chosen_id
    from (select chosen_id, sum(size) over (rows unbounded preceding) - size as before from candidates) as counted
    where before < ${messages}::int
  ),
  taken as (
    update ${deliveryChunks}
    set ${chunk.state} = case when ${isCancelled} then ${chunk.state} else 'TAKEN' end,
      ${chunk.processId} = case when not ${isCancelled} then ${process}::uuid end,
      ${chunk.attempt} = gen_random_uuid(),
      ${chunk.stored} = 0, ${chunk.takes} = ${chunk.takes} + 1,
      ${chunk.firstAttemptAt} = coalesce(${chunk.firstAttemptAt}, now()), ${chunk.updatedAt} = now()
    where ${chunk.id} = any(array(select chosen_id from chosen))
    returning *
  )
  select ${taken}, ${rest}, to_jsonb(told) as notification
  from taken c
    left join lateral (select * from ${notifications} n where ${n.id} = ${c.notificationId} offset 0) as n on true
    left join ${providerStates} p on ${isWholeProvider(p, provider)}
    left join lateral (select ${notification}) as told on true
    left join lateral (
      select json_agg(device order by nth) as devices
      from unnest(${c.deviceIds}) with ordinality as wanted (wanted_id, nth)
        cross join lateral (
          select ${device} from ${devices} d
          where ${d.id} = wanted_id and ${d.provider} = ${c.provider} and ${d.expiresAt} > now()
            and (${n.kind} <> 'USERS' or exists (select ${ofNamed})) offset 0
        ) as device
      where ${mayBeSent.getSQL()}
    ) as found on true
  order by ${c.isRetry}, ${c.turn}, ${c.id}`;

const common = ["provider", "process", "messages", "chunks"] as const;

const takeInTurn = prepared(
  [...common, "retries", "turns", "ids", "lasts", "limits"],
  ({ provider, process, messages, chunks, retries, turns, ids, lasts, limits }) =>
    takeFirst(
      sql`
        select candidate.* from unnest(${retries}::boolean[], ${turns}::bigint[], ${ids}::bigint[], ${lasts}::bigint[],
            ${limits}::int[]) as kind (is_retried, from_turn, from_id, last_turn, most)
          cross join lateral (
            select ${candidate} from ${deliveryChunks}
            where ${isReady(provider)} and ${chunk.isRetry} = is_retried
              and (${chunk.turn}, ${chunk.id}) > (from_turn, from_id) and ${chunk.turn} <= last_turn
            order by ${chunk.turn}, ${chunk.id} limit kind.most ${lock}
          ) as candidate
        where not ${isPaused(provider)}
        limit ${chunks}::int`,
      { provider, process, messages },
    ),
);

const takeOldest = prepared([...common, "after"], ({ provider, process, messages, chunks, after }) =>
  takeFirst(
    sql`
      select ${candidate} from ${deliveryChunks}
      where ${isReady(provider)} and not ${chunk.isRetry} and ${chunk.id} > ${after}::bigint
        and not ${isPaused(provider)}
      order by ${chunk.id} limit ${chunks}::int ${lock}`,
    { provider, process, messages },
  ),
);

export class ChunkTaker {
  readonly #db: Database;
  readonly #processes: Processes;
  readonly #provider: ProviderName;
  /** A little before what was taken last. */
  readonly #last = atStart();
  /** When it began at the start last with giving back what it did not know of. */
  #startedAt = performance.now();
  /** Whether takes from the start are slow. */
  #isSlow = false;
  /** Messages to be taken in turn before the oldest chunks come. */
  #untilOldest = 1;

  constructor(db: Database, processes: Processes, provider: ProviderName) {
    this.#db = db;
    this.#processes = processes;
    this.#provider = provider;
  }

  /**
   * Takes chunks; none if the provider is paused.
   * @param messages how many messages there is room for: the last of the chunks may exceed it
   * @param most the most chunks, and how many of them may be such whose devices were tried before
   * @param held the ids of the chunks that this process is sending
   */
  async take(messages: number, most: MostChunks, held: readonly number[]): Promise<TakenChunk[]> {
    const process = await this.#processes.id();
    const asOf = performance.now();
    const isDue = asOf - this.#startedAt > fromStartMs;
    if (isDue) await giveBackUnknown(this.#db, { processId: process, provider: this.#provider, held });
    const isFromStart = isDue || !this.#isSlow;
    const from = isFromStart ? atStart() : this.#last;
    const chunks = Math.max(1, Math.min(mostChunks, most.chunks));
    const options = { provider: this.#provider, process, messages, chunks };
    try {
      const found =
        (await this.#takeOldest(options, from)) ??
        (await this.#read(inTurn(options, from, most.retries), asOf, (chunk) => this.#goOn(chunk)));
      if (isFromStart) this.#isSlow = performance.now() - asOf > slowMs;
      // What is left has an earlier turn, such as that of a small notification after a large one.
      else if (found.length === 0) this.#isSlow = false;
      if (isDue) this.#startedAt = asOf;
      return found;
    } catch (err) {
      // Chunks may have been taken although the response was lost.
      this.#startedAt = Number.NEGATIVE_INFINITY;
      // The row of this process is gone.
      if (sqlState(err) === "23503") this.#processes.forget(process);
      throw err;
    }
  }

  async #read(statement: SQL, asOf: number, taken: (chunk: TakenChunk) => void): Promise<TakenChunk[]> {
    const found = (await rawRows(this.#db, statement)).map((row) => readChunk(row, asOf));
    for (const chunk of found) taken(chunk);
    return found;
  }

  /** Takes the oldest chunks, if it is their turn and there are any. */
  async #takeOldest(options: TakeOptions, { oldestId }: Start): Promise<TakenChunk[] | undefined> {
    if (this.#untilOldest > 0) return undefined;
    this.#untilOldest = 1;
    const found = await this.#read(
      takeOldest({ ...options, after: oldestId }),
      performance.now(),
      (chunk) => {
        this.#untilOldest += chunk.left * (oldestEvery - 1);
        this.#last.oldestId = Math.max(this.#last.oldestId, chunk.id - slack);
      },
    );
    return found.length > 0 ? found : undefined;
  }

  #goOn({ id, turn, isRetry, left }: TakenChunk): void {
    const last = this.#last;
    this.#untilOldest -= left;
    const earlier = turn - 2 * turnsOfRange;
    if (isRetry) last.retriedTurn = Math.max(testTurn, earlier);
    else if (turn > 0) last.turn = Math.max(1, earlier);
    else if (turn === 0) last.firstId = Math.max(last.firstId, id - slack);
  }
}

function inTurn(options: TakeOptions, { firstId, turn, retriedTurn }: Start, retries: number): SQL {
  // Test runs, the first chunks of each notification, the others, and those that were tried before.
  const kinds = [
    { isRetry: false, turn: testTurn, id: 0, last: testTurn },
    { isRetry: false, turn: 0, id: firstId, last: 0 },
    { isRetry: false, turn, id: 0, last: Number.MAX_SAFE_INTEGER },
    { isRetry: true, turn: retriedTurn, id: 0, last: Number.MAX_SAFE_INTEGER, most: retries },
  ];
  return takeInTurn({
    ...options,
    retries: arrayLiteral(kinds.map(({ isRetry }) => String(isRetry))),
    turns: arrayLiteral(kinds.map((kind) => kind.turn)),
    ids: arrayLiteral(kinds.map(({ id }) => id)),
    lasts: arrayLiteral(kinds.map(({ last }) => last)),
    limits: arrayLiteral(kinds.map(({ most = mostChunks }) => Math.max(0, most))),
  });
}

/** How many chunks may be taken. */
interface MostChunks {
  readonly chunks: number;
  /** Of these: chunks whose devices were tried before. */
  readonly retries: number;
}

type TakeOptions = Record<(typeof common)[number], string | number>;

function readChunk(row: Record<string, unknown>, asOf: number): TakenChunk {
  const { notificationId, traceparent, tracestate, ...told } = rest.read(row);
  const { mayBeSent, ...others } = told;
  return {
    ...taken.read(row),
    ...others,
    asOf,
    notificationId,
    notification: mayBeSent ? notification.read(row["notification"]) : undefined,
    trace: traceparent === null ? undefined : { traceparent, ...(tracestate !== null && { tracestate }) },
  };
}
