/** WAITING chunks become READY: when they are due, or when what they wait for happens earlier. */
import { type SQL, sql } from "drizzle-orm";
import { type Database, plannedEachTime } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { isAmong, rowCount } from "../../platform/database/sql/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks } from "../schema.ts";

/** The most chunks that one statement writes. */
const stepSize = 1_000;

const chunk = names(deliveryChunks);

/** SQL text, as it is planned each time: a plan that was made while nothing waited would read all chunks. */
async function makeReady(db: Database, which: SQL): Promise<number> {
  let count = 0;
  for (;;) {
    const some = sql`
      select ${chunk.id} from ${deliveryChunks} where ${chunk.state} = 'WAITING' and ${which}
      order by ${chunk.dueAt} limit ${stepSize}::int for update skip locked`;
    const made = await rowCount(
      db,
      sql`${sql.raw(plannedEachTime)}
        update ${deliveryChunks} set ${chunk.state} = 'READY', ${chunk.dueAt} = null, ${chunk.awaits} = null
        where ${isAmong(chunk.id, some)} returning 1 as one`,
    );
    count += made;
    if (made < stepSize) return count;
  }
}

/** Makes the chunks READY that are due. @returns how many */
export function endDueWaits(db: Database): Promise<number> {
  return makeReady(db, sql`${chunk.dueAt} <= now()`);
}

/** Makes the provider's chunks READY that wait for its next response, or for anything of the provider. */
export function endWaits(db: Database, provider: ProviderName, what: "RESPONSE" | "ALL"): Promise<number> {
  const isWanted = what === "ALL" ? sql`${chunk.awaits} is not null` : sql`${chunk.awaits} = ${what}`;
  return makeReady(db, sql`${chunk.provider} = ${provider} and ${isWanted}`);
}
