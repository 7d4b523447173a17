/**
 * The safety stop: if a provider reports an unusual share of a notification's devices dead, the reports are more
 * likely wrong than right, and no more of the notification's tokens are removed.
 */
import { sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { integer } from "../../platform/database/readers.ts";
import { computed, rows, selection } from "../../platform/database/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks, notifications } from "../schema.ts";

interface Report {
  readonly chunk: {
    readonly id: number;
    readonly attempt: number;
    readonly notification: { readonly id: string };
  };
  readonly provider: ProviderName;
  /** Dead devices of this chunk; those that other chunks have stored are added. */
  readonly dead: number;
  readonly attempted: number;
}

interface Limits {
  /** Percent of the devices attempted. */
  readonly maxDeadPercent: number;
  /** Dead devices up to which removal never stops. */
  readonly leastDead: number;
}

const notification = names(notifications);
const n = names(notifications, "n");
const c = names(deliveryChunks, "c");
const mine = names(deliveryChunks, "mine");

const counts = selection({
  dead: computed(integer, sql`so_far.reported`),
  attempted: computed(integer, sql`so_far.attempted`),
});

/**
 * Stops the removal of the notification's tokens if too many of its devices are dead. It is a statement of its own
 * before the chunk is stored, so that only one of several workers stops the removal.
 * @returns the counts of dead and of attempted devices, if this call stopped the removal
 */
export async function stopRemovalIfTooMany(
  db: Database,
  { chunk, provider, dead, attempted }: Report,
  { maxDeadPercent, leastDead }: Limits,
): Promise<{ dead: number; attempted: number } | undefined> {
  const [stopped] = await rows(
    db,
    counts,
    sql`
      update ${notifications} n set ${notification.removalStoppedAt} = now()
      from (
        select coalesce(sum(${c.dead}), 0)::int + ${dead}::int as reported,
          coalesce(sum(${c.sent} + ${c.failed}), 0)::int + ${attempted}::int as attempted
        from ${deliveryChunks} c
        where ${c.notificationId} = ${chunk.notification.id}::uuid and ${c.provider} = ${provider}
      ) so_far
      where ${n.id} = ${chunk.notification.id}::uuid and ${n.removalStoppedAt} is null
        and so_far.reported > greatest(${leastDead}::float8, so_far.attempted * ${maxDeadPercent}::float8 / 100)
        and exists (
          select from ${deliveryChunks} mine
          where ${mine.id} = ${chunk.id}::bigint and ${mine.attempt} = ${chunk.attempt}::int
            and ${mine.state} = 'SENDING')
      returning ${counts}`,
  );
  return stopped;
}
