/** The entries that are rows of their own: those of notifications that only name users. */
import { type SQL, sql } from "drizzle-orm";
import { names } from "../../platform/database/sql/readers.ts";
import { historyEntries } from "../recipients-schema.ts";
import { numbersFor } from "./history-blocks.ts";

const entry = names(historyEntries);

/**
 * Expressions of a `with` list that give users an entry each, with their variables, and a number.
 * @param found as that of {@link numbersFor}, with the column `own_variables`, the same for each row of a user
 */
export function rowsFor(found: SQL, notificationId: SQL): SQL {
  return sql`${numbersFor(found)},
    entries as (
      insert into ${historyEntries} (${entry.userNumber}, ${entry.notificationId}, ${entry.variables})
      select entry_number, ${notificationId}, own_variables from (
        select known_number as entry_number, own_variables from ${found} where known_number is not null
        union
        select numbered.known_number, own_variables from numbered join ${found} using (person)
      ) as members
      order by entry_number
      on conflict do nothing
    )`;
}
