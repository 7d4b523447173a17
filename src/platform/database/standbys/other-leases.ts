/** Endings at a process that reads from no standbys while others do, as during the roll-out of `DB_READ_HOSTS`. */
import { sql } from "drizzle-orm";
import { pause } from "../../base/loop.ts";
import type { Reads } from "../database.ts";
import { batched } from "../sql/batched-lookup.ts";
import { listOf, names, number, text } from "../sql/readers.ts";
import { computed, fromPrimary, isStandby, prepared, rows, selection } from "../sql/statements.ts";
import type { LeaseTable } from "./lease-table.ts";
import { longestLeaseMs } from "./leases.ts";
import { SeenBeats } from "./seen-beats.ts";

/** Milliseconds for which an unchanged row may still have leases: a later beat may be confirmed and not visible yet. */
const silentMs = 2 * longestLeaseMs;

interface Dependencies {
  readonly db: Reads;
  readonly table: LeaseTable;
}

/**
 * @returns resolves once no process relies on a standby's state older than this call; after one look if none reads them
 * @throws an error that means that the database is unavailable
 */
export function createOtherLeases({ db, table }: Dependencies): () => Promise<void> {
  const { processId, beat, servers } = names(table);
  const row = selection({
    processId: computed(text, sql`${processId}::text`),
    beat: computed(number, sql`${beat}::float8`),
  });
  const all = selection({ found: computed(listOf(row), sql`coalesce(json_agg(leases), '[]')`), isStandby });
  const select = prepared(
    [],
    () => sql`select ${all} from (select ${row} from ${table} where ${servers} <> '{}') as leases`,
  );
  const seen = new SeenBeats();

  /** Milliseconds that an ending has to wait, until every lease that may be older than it has run out. */
  async function waitForLeases(): Promise<number> {
    const [read] = await rows(db, all, select({}));
    const { found } = fromPrimary(read);
    seen.saw(found);
    return found.length > seen.unchangedFor(silentMs).length ? longestLeaseMs : 0;
  }

  // Endings that come meanwhile share the next look.
  const look = batched<"rows", number>({
    load: async () => new Map([["rows", await waitForLeases()]]),
    maxQueries: 1,
  });

  return async () => {
    const waitMs = (await look("rows")) ?? 0;
    if (waitMs > 0) await pause(waitMs);
  };
}
