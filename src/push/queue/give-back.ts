/** Chunks that go back into the queue: their holder cannot settle them, or their wait is over. */
import { and, eq, notInArray, type SQL, sql } from "drizzle-orm";
import { type Database, plannedEachTime } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { isAmong, rowCount } from "../../platform/database/sql/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks } from "../schema.ts";
import { maxTakes } from "./chunk-states.ts";

/** Seconds of the longest wait before a chunk is sent again whose sending has thrown. */
const longestWaitSeconds = 60;

/** The reason of the dead letter, for an operator. */
const reason = "Sending it failed again and again, or the process that sent it died each time: see the log.";

const chunk = deliveryChunks;
const isDead = sql`${chunk.takes} >= ${maxTakes}`;
const given = {
  processId: null,
  isRetry: true,
  reason: sql`case when ${isDead} then ${reason} else ${chunk.reason} end`,
  updatedAt: sql`now()`,
};

/** Makes the TAKEN chunks READY, or dead letters. @returns how many */
export async function handOver(tx: Database, which: SQL): Promise<number> {
  const handed = await tx
    .update(chunk)
    .set({ ...given, state: sql`case when ${isDead} then 'DEAD' else 'READY' end` })
    .where(which)
    .returning({ id: chunk.id });
  return handed.length;
}

/**
 * Gives back what a living process has taken without knowing, as the response to the take was lost.
 * @param held the ids of the provider's chunks that the process is sending
 */
export async function giveBackUnknown(
  db: Database,
  { processId, provider, held }: { processId: string; provider: ProviderName; held: readonly number[] },
): Promise<void> {
  await db
    .update(chunk)
    .set({ state: "READY", processId: null, takes: sql`${chunk.takes} - 1` })
    .where(
      and(eq(chunk.processId, processId), eq(chunk.provider, provider), notInArray(chunk.id, [...held])),
    );
}

/**
 * Gives back a chunk whose sending has thrown: it waits, for longer each time, or becomes a dead letter.
 * @returns whether it became one; undefined if the attempt had lost the chunk
 */
export async function giveBack(
  db: Database,
  { id, attempt }: { readonly id: number; readonly attempt: string },
): Promise<boolean | undefined> {
  const waitSeconds = sql`least(${longestWaitSeconds}, power(2, ${chunk.takes}))`;
  const [row] = await db
    .update(chunk)
    .set({
      ...given,
      state: sql`case when ${isDead} then 'DEAD' else 'WAITING' end`,
      dueAt: sql`case when not ${isDead} then now() + make_interval(secs => ${waitSeconds}) end`,
    })
    .where(and(eq(chunk.id, id), eq(chunk.attempt, attempt), eq(chunk.state, "TAKEN")))
    .returning({ state: chunk.state });
  return row && row.state === "DEAD";
}

/** The most chunks that one statement writes. */
const stepSize = 1_000;

const column = names(deliveryChunks);

/** SQL text, as it is planned each time: a plan that was made while nothing waited would read all chunks. */
async function makeReady(db: Database, which: SQL): Promise<number> {
  let count = 0;
  for (;;) {
    const some = sql`
      select ${column.id} from ${deliveryChunks} where ${column.state} = 'WAITING' and ${which}
      order by ${column.dueAt} limit ${stepSize}::int for update skip locked`;
    const made = await rowCount(
      db,
      sql`${sql.raw(plannedEachTime)}
        update ${deliveryChunks} set ${column.state} = 'READY', ${column.dueAt} = null, ${column.awaits} = null
        where ${isAmong(column.id, some)} returning 1 as one`,
    );
    count += made;
    if (made < stepSize) return count;
  }
}

/** Makes the chunks READY that are due. @returns how many */
export function endDueWaits(db: Database): Promise<number> {
  return makeReady(db, sql`${column.dueAt} <= now()`);
}

/** Makes the provider's chunks READY that wait for its next response, or for anything of the provider. */
export function endWaits(db: Database, provider: ProviderName, what: "RESPONSE" | "ALL"): Promise<number> {
  const isWanted = what === "ALL" ? sql`${column.awaits} is not null` : sql`${column.awaits} = ${what}`;
  return makeReady(db, sql`${column.provider} = ${provider} and ${isWanted}`);
}
