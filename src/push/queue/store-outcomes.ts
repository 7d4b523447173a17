/**
 * What became of each device of a notification for a few named users, kept for its caller beside the sums of its chunks.
 * A row is written only while the user is still named: a user who is forgotten gets none afterwards.
 */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { prepared } from "../../platform/database/sql/statements.ts";
import { messageOutcomes, notificationUsers } from "../recipients-schema.ts";
import { deliveryChunks, devices, type notifications } from "../schema.ts";

/** The most users of a notification whose outcomes are kept one by one. */
const mostUsers = 1_000;

/** A condition on a notification: outcomes of its devices are kept. @param n names its columns */
export const keepsOutcomes = (n: Record<keyof typeof notifications.$inferSelect, SQL>): SQL =>
  sql`coalesce(${n.kind} = 'USERS' and (${n.audience} ->> 'users')::int <= ${sql.raw(String(mostUsers))}, false)`;

/** What became of the message to a device. */
export interface DeviceOutcome {
  readonly userId: string;
  readonly deviceId: number;
  readonly outcome: "SENT" | "FAILED" | "DEAD_LETTERED";
  /** The provider's; null if it was sent. */
  readonly reason: string | null;
}

const row = names(messageOutcomes);
const excluded = names(messageOutcomes, "excluded");
const u = names(notificationUsers, "u");
const c = names(deliveryChunks, "c");
const d = names(devices, "d");

/** Whoever forgets a user waits until the row is written, and then removes it. */
const strength = "key share";

/**
 * Later outcomes take the place of earlier ones: a dead letter may be replayed. `is true` keeps PostgreSQL from the index
 * of notifications, and `offset 0` from reading the table.
 * @param found as `settled`
 */
const insert = (notificationId: SQL, found: SQL): SQL => sql`
  insert into ${messageOutcomes} (${row.notificationId}, ${row.userId}, ${row.deviceId}, ${row.provider},
    ${row.outcome}, ${row.reason}, ${row.at})
  select ${notificationId}, settled_user, settled_device, settled_provider, settled_outcome, settled_reason, now()
  from (${found}) as settled (settled_user, settled_device, settled_provider, settled_outcome, settled_reason)
    cross join lateral (
      select from ${notificationUsers} u
      where ${u.userId} = settled_user and (${u.notificationId} = ${notificationId}) is true offset 0 for ${sql.raw(strength)}
    ) as named
  on conflict (${row.notificationId}, ${row.userId}, ${row.deviceId}) do update
  set ${row.outcome} = ${excluded.outcome}, ${row.reason} = ${excluded.reason}, ${row.at} = ${excluded.at}`;

// One statement, as each chunk of a notification to a few users runs it.
const insertSettled = prepared(["notificationId", "provider", "outcomes"], (parameter) =>
  insert(
    sql`${parameter.notificationId}::uuid`,
    sql`
      select person, device, ${parameter.provider}::text, outcome_text, reason_text
      from jsonb_to_recordset(${parameter.outcomes}::jsonb)
        as piece (person text, device bigint, outcome_text text, reason_text text)
      order by person collate "C", device`,
  ),
);

/** Stores outcomes of a chunk. @param tx the transaction that stores its results */
export async function storeOutcomes(
  tx: Database,
  of: { readonly notificationId: string; readonly provider: string },
  outcomes: readonly DeviceOutcome[],
): Promise<void> {
  if (outcomes.length === 0) return;
  await tx.execute(insertSettled({ ...of, outcomes: JSON.stringify(outcomes.map(pieceOf)) }));
}

/** An outcome, as the statement reads it. */
const pieceOf = ({ userId, deviceId, outcome, reason }: DeviceOutcome) => ({
  ...{ person: userId, device: deviceId },
  ...{ outcome_text: outcome, reason_text: reason },
});

/** Stores that the devices of a notification's chunks are dropped. @param tx a transaction that drops them next */
export async function storeDropped(
  tx: Database,
  notificationId: string,
  chunks: readonly number[],
): Promise<void> {
  if (chunks.length === 0) return;
  const found = sql`
    select ${d.userId}, ${d.id}, ${d.provider}, 'DROPPED', null::text from ${deliveryChunks} c
    cross join unnest(${c.deviceIds}) as left_device join ${devices} d on ${d.id} = left_device
    where ${c.id} = any(${arrayLiteral(chunks)}::bigint[]) order by ${d.userId}, ${d.id}`;
  await tx.execute(insert(sql`${notificationId}::uuid`, found));
}
