/** Chunks that their holder cannot settle: it has failed, has stopped or has died. */
import { and, eq, notInArray, type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
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
 * Gives back what a living process has taken without knowing: the response to the take was lost. It was not sent.
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
