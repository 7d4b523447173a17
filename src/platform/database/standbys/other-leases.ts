/**
 * Endings at a process that reads from no standbys, while other processes of its service do: as during the roll-out of
 * `DB_READ_HOSTS`. Such an ending waits until no lease can be older than it.
 */
import { sql } from "drizzle-orm";
import { pause } from "../../base/loop.ts";
import type { Reads } from "../database.ts";
import { batched } from "../sql/batched-lookup.ts";
import { names } from "../sql/names.ts";
import { number, text } from "../sql/readers.ts";
import { computed, prepared, rows, selection } from "../sql/statements.ts";
import type { LeaseTable } from "./lease-table.ts";
import { longestLeaseMs } from "./leases.ts";

interface Dependencies {
  /** The primary. */
  readonly db: Reads;
  readonly table: LeaseTable;
}

/**
 * @returns resolves once no process relies on a state of a standby that is older than this call: at once, but for one
 *   look at the primary, if none reads from standbys
 * @throws an error that means that the database is unavailable
 */
export function createOtherLeases({ db, table }: Dependencies): () => Promise<void> {
  const { processId, beat, servers } = names(table);
  const row = selection({
    processId: computed(text, sql`${processId}::text`),
    beat: computed(number, sql`${beat}::float8`),
  });
  const select = prepared([], () => sql`select ${row} from ${table} where ${servers} <> '{}'`);
  /** The newest beat of each process that was read, and when it was first read, by performance.now(). */
  let known = new Map<string, { readonly beat: number; readonly since: number }>();

  /** Milliseconds until every lease that may run now has run out, from a moment before the rows were read. */
  async function longestLease(): Promise<number> {
    const now = performance.now();
    const found = await rows(db, row, select({}));
    known = new Map(
      found.map((one) => {
        const before = known.get(one.processId);
        return [one.processId, before?.beat === one.beat ? before : { beat: one.beat, since: now }];
      }),
    );
    // A beat that has stood for so long was the last one of a process that has ended: no lease runs from it.
    const isAnyRunning = [...known.values()].some(({ since }) => now - since < longestLeaseMs);
    return isAnyRunning ? longestLeaseMs : 0;
  }

  // Endings that come meanwhile share the next look: one that began before an ending may not show all of its leases.
  const look = batched<"rows", number>({
    load: async () => new Map([["rows", await longestLease()]]),
    maxQueries: 1,
  });

  return async () => {
    const waitMs = (await look("rows")) ?? 0;
    if (waitMs > 0) await pause(waitMs);
  };
}
