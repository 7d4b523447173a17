/** WAITING chunks become READY: when they are due, or when what they wait for happens earlier. */
import { and, eq, isNotNull, lte, type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { isAmong } from "../../platform/database/sql/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks } from "../schema.ts";

/** The most chunks that one statement writes. */
const stepSize = 1_000;

const chunk = deliveryChunks;
const isWaiting = eq(chunk.state, "WAITING");

async function makeReady(db: Database, which: SQL | undefined): Promise<number> {
  let count = 0;
  for (;;) {
    const some = db
      .select({ id: chunk.id })
      .from(chunk)
      .where(and(isWaiting, which))
      .orderBy(chunk.dueAt)
      .limit(stepSize)
      .for("update", { skipLocked: true });
    const made = await db
      .update(chunk)
      .set({ state: "READY", dueAt: null, awaits: null })
      .where(isAmong(chunk.id, some.getSQL()))
      .returning({ id: chunk.id });
    count += made.length;
    if (made.length < stepSize) return count;
  }
}

/** Makes the chunks READY that are due. @returns how many */
export function endDueWaits(db: Database): Promise<number> {
  return makeReady(db, lte(chunk.dueAt, sql`now()`));
}

/** Makes the provider's chunks READY that wait for its next response, or for anything of the provider. */
export function endWaits(db: Database, provider: ProviderName, what: "RESPONSE" | "ALL"): Promise<number> {
  return makeReady(
    db,
    and(eq(chunk.provider, provider), what === "ALL" ? isNotNull(chunk.awaits) : eq(chunk.awaits, what)),
  );
}
