/**
 * Stores what an attempt has done, and makes chunks of the devices that go on apart. Each write names the attempt and
 * its number: an attempt that has lost its chunk writes nothing, and a write whose commit was not seen can be repeated.
 */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { integer, listOf, names, oneOf } from "../../platform/database/sql/readers.ts";
import {
  computed,
  onlyRow,
  prepared,
  type RowOf,
  rowCount,
  selection,
} from "../../platform/database/sql/statements.ts";
import { deliveryChunks } from "../schema.ts";
import { chunkStates } from "./chunk-states.ts";
import type { TakenChunk } from "./take-chunks.ts";

/** Devices of a chunk that go on together. */
export interface Part {
  readonly state: "TAKEN" | "READY" | "WAITING" | "DONE" | "DEAD";
  readonly devices: readonly number[];
  /** Milliseconds that it waits. */
  readonly waitMs: number;
  /** What ends the wait earlier; null: nothing. */
  readonly awaits: "SERVICE" | "RESPONSE" | null;
  readonly isRetry: boolean;
  readonly retries: number;
  readonly reason: string | null;
  /** Whether the time in which the devices fail begins anew, as they wait for something else than their own next try. */
  readonly startsAnew: boolean;
}

/** What is new since the attempt's last write. */
export interface Results {
  /** The number of this write among the attempt's; the first one is 1. */
  readonly write: number;
  readonly sent: number;
  readonly failed: number;
  readonly dropped: number;
  /** How many devices of the chunk have failed, by reason, in all. */
  readonly failures: Readonly<Record<string, number>>;
  /** What the chunk becomes. */
  readonly kept: Part;
  /** The parts that become chunks of their own. */
  readonly others: readonly Part[];
}

const chunk = names(deliveryChunks);
const writtenFields = {
  id: chunk.id,
  state: computed(oneOf(chunkStates), chunk.state),
  devices: computed(integer, sql`cardinality(${chunk.deviceIds})`),
  reason: chunk.reason,
};
const written = selection(writtenFields);

/** A chunk as it was written. */
export type WrittenChunk = RowOf<typeof writtenFields>;

/** Another process has the chunk by now: the results are stored nowhere. */
export class ChunkLostError extends Error {
  override readonly name = "ChunkLostError";
}

const c = names(deliveryChunks, "c");
/** The chunk as it was before the statement. */
const b = names(deliveryChunks, "b");
const s = names(deliveryChunks, "s");
const result = selection({ chunks: computed(listOf(written), sql`coalesce(jsonb_agg(chunk), '[]')`) });

const parameters = [
  "id",
  "attempt",
  "write",
  "sent",
  "failed",
  "dropped",
  "failures",
  "kept",
  "others",
  "moved",
] as const;

/** The columns of a {@link Part}, as JSON has them. */
const pieceColumns = sql`(next_state text, devices bigint[], wait_ms float8, wait_for text, tried boolean, try_count int,
  why text, anew boolean)`;
const dueAt = sql`case piece.next_state when 'WAITING' then now() + make_interval(secs => piece.wait_ms / 1000) end`;

/** A part, as the statement reads it. */
const pieceOf = (part: Part) => ({
  next_state: part.state,
  devices: part.devices,
  wait_ms: part.waitMs,
  wait_for: part.awaits,
  tried: part.isRetry,
  try_count: part.retries,
  why: part.reason,
  anew: part.startsAnew,
});

/** SQL text, since one statement writes the chunk and makes chunks of its parts. */
const store = prepared(
  parameters,
  ({ id, attempt, write, sent, failed, dropped, failures, kept, others, moved }) => sql`
    with written as (
      update ${deliveryChunks} c
      set ${chunk.stored} = ${write}::int, ${chunk.state} = piece.next_state, ${chunk.dueAt} = ${dueAt},
        ${chunk.awaits} = piece.wait_for, ${chunk.processId} = case piece.next_state when 'TAKEN' then ${c.processId} end,
        ${chunk.takes} = 0, ${chunk.deviceIds} = piece.devices,
        ${chunk.planned} = ${c.planned} - ${moved}::int, ${chunk.sent} = ${c.sent} + ${sent}::int,
        ${chunk.failed} = ${c.failed} + ${failed}::int, ${chunk.dropped} = ${c.dropped} + ${dropped}::int,
        ${chunk.failures} = ${failures}::jsonb, ${chunk.isRetry} = ${c.isRetry} or piece.tried,
        ${chunk.retries} = piece.try_count, ${chunk.reason} = piece.why,
        ${chunk.firstAttemptAt} = case when not piece.anew then ${c.firstAttemptAt} end,
        ${chunk.updatedAt} = now()
      from jsonb_to_record(${kept}::jsonb) as piece ${pieceColumns}
      where ${c.id} = ${id}::bigint and ${c.attempt} = ${attempt}::uuid and ${c.state} = 'TAKEN'
        and ${c.stored} = ${write}::int - 1
      returning c.*
    ),
    made as (
      insert into ${deliveryChunks} (${chunk.notificationId}, ${chunk.provider}, ${chunk.utcOffset}, ${chunk.turn},
        ${chunk.state}, ${chunk.dueAt}, ${chunk.awaits}, ${chunk.isRetry}, ${chunk.deviceIds}, ${chunk.planned},
        ${chunk.retries}, ${chunk.firstAttemptAt}, ${chunk.reason})
      select ${s.notificationId}, ${s.provider}, ${s.utcOffset}, ${s.turn}, piece.next_state, ${dueAt}, piece.wait_for,
        ${s.isRetry} or piece.tried, piece.devices, cardinality(piece.devices), piece.try_count,
        case when not piece.anew then ${b.firstAttemptAt} end, piece.why
      from written s join ${deliveryChunks} b on ${b.id} = ${s.id}
        cross join jsonb_to_recordset(${others}::jsonb) as piece ${pieceColumns}
      returning *
    )
    select ${result} from (select ${written} from written union all select ${written} from made) as chunk`,
);

/**
 * Stores results.
 * @returns the chunk as it is now, and those that were made of its parts; undefined if the same write was stored before
 * @throws ChunkLostError if the attempt has the chunk no more; then nothing is stored
 */
export async function storeResults(
  tx: Database,
  { id, attempt }: Pick<TakenChunk, "id" | "attempt">,
  { write, sent, failed, dropped, failures, kept, others }: Results,
): Promise<readonly WrittenChunk[] | undefined> {
  const { chunks } = await onlyRow(
    tx,
    result,
    store({
      ...{ id, attempt, write, sent, failed, dropped },
      failures: JSON.stringify(failures),
      kept: JSON.stringify(pieceOf(kept)),
      others: JSON.stringify(others.map(pieceOf)),
      moved: others.reduce((sum, { devices }) => sum + devices.length, 0),
    }),
  );
  if (chunks.length > 0) return chunks;
  // A chunk that is gone was DONE: its notification has completed.
  const lost = await rowCount(
    tx,
    sql`
      select 1 as one from ${deliveryChunks} where ${chunk.id} = ${id}::bigint
        and (${chunk.attempt} is distinct from ${attempt}::uuid or ${chunk.stored} < ${write}::int)`,
  );
  if (lost > 0) throw new ChunkLostError(`another process has chunk ${id}`);
  return undefined;
}
