/** Removes a user's history, for instance as the identity was deleted. */
import { sql } from "drizzle-orm";
import { lowestUuidv7 } from "../../platform/crypto/uuid.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { onlyRow, rows, selection } from "../../platform/database/sql/statements.ts";
import { historyBlocks, historyUsers, historyViews } from "../schema.ts";
import { giveEntries, nextNumber, takeEntries } from "./history-blocks.ts";

const { userId: id, userNumber } = names(historyUsers);
const block = names(historyBlocks);
const view = names(historyViews);

const numbered = selection({ number: userNumber });
const entry = selection({ notificationId: block.notificationId });

/**
 * Removes the user's number, without which entries and views are nobody's; they go by age. What is kept moves to a new
 * number; a view that is written meanwhile is lost. In a transaction that has the exclusive lock of planning.
 * @param keptFrom keeps entries of notifications that were accepted at this moment or later; none unless given
 */
export async function forgetHistory(tx: Database, userId: string, keptFrom?: Date): Promise<void> {
  const ofUser = sql`${id} = ${userId}`;
  const [before] = await rows(
    tx,
    numbered,
    sql`select ${numbered} from ${historyUsers} where ${ofUser} for update`,
  );
  if (!before) return;
  const kept =
    keptFrom === undefined
      ? []
      : await rows(
          tx,
          entry,
          sql`${takeEntries(before.number, lowestUuidv7(keptFrom.getTime()))} returning ${entry}`,
        );
  if (kept.length === 0) {
    await tx.execute(sql`delete from ${historyUsers} where ${ofUser}`);
    return;
  }
  const { number } = await onlyRow(
    tx,
    numbered,
    sql`update ${historyUsers} set ${userNumber} = ${nextNumber} where ${ofUser} returning ${numbered}`,
  );
  const ids = sql`${arrayLiteral(kept.map(({ notificationId }) => notificationId))}::uuid[]`;
  await tx.execute(giveEntries(number, ids));
  await tx.execute(sql`
    with moved as (
      delete from ${historyViews} where ${view.userNumber} = ${before.number} and ${view.notificationId} = any(${ids})
      returning ${view.notificationId}, ${view.viewedAt}
    )
    insert into ${historyViews} (${view.userNumber}, ${view.notificationId}, ${view.viewedAt})
    select ${number}::bigint, ${view.notificationId}, ${view.viewedAt} from moved`);
}
