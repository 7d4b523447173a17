/**
 * The safety stop of removals: if a provider reports an unusual share of its last users dead, no token is removed until
 * an operator decides. Each user counts once, with the last response, and many must be concerned.
 */
import { and, countDistinct, eq, gt, isNull, ne, sql } from "drizzle-orm";
import { confirmCommit } from "../../platform/database/confirm.ts";
import type { Database } from "../../platform/database/database.ts";
import { integer, names } from "../../platform/database/sql/readers.ts";
import { computed, onlyRow, selection } from "../../platform/database/sql/statements.ts";
import { PushEvents, recordEvent } from "../events.ts";
import type { ProviderName } from "../provider-settings.ts";
import { isWholeProvider } from "../queue/provider-rows.ts";
import { deadReports, providerResponses } from "../removals-schema.ts";
import { notifications, providerStates } from "../schema.ts";
import type { DeliveryRules } from "./delivery-rules.ts";

const response = names(providerResponses);
const isProvider = (provider: ProviderName) => isWholeProvider(names(providerStates), provider);

/** How long the safety stop looks back at most. */
export const memory = sql`interval '1 day'`;
/** On how many responses it looks back at most, for each user that it judges: the newest may be about few users. */
const responsesPerUser = 4;

export interface StopLimits extends Pick<DeliveryRules, "leastDead" | "judgedUsers"> {
  /** Percent of the judged users. */
  readonly maxDeadPercent: number;
}

/** The users who were judged when the removals were stopped. */
export interface StoppedAt {
  readonly users: number;
  readonly deadUsers: number;
}

/** The state of a provider's removals. */
export interface Removals {
  /** Whether dead devices are kept, as the removals are stopped. */
  readonly isHeld: boolean;
  /** The users who were judged, if the removals were stopped just now. */
  readonly stoppedAt: StoppedAt | undefined;
}

/** Stops the removals of the provider, which has a row in `provider_states`, if it reports too many users dead. */
export async function stopIfTooMany(
  tx: Database,
  provider: ProviderName,
  limits: StopLimits,
): Promise<Removals> {
  const { removalsHeldAt } = providerStates;
  const [state] = await tx.select({ removalsHeldAt }).from(providerStates).where(isProvider(provider));
  if (state?.removalsHeldAt) return { isHeld: true, stoppedAt: undefined };
  const { users, deadUsers } = await judgeUsers(tx, provider, limits);
  const isTooMany = deadUsers * 100 > users * limits.maxDeadPercent;
  if (!isTooMany || (await usersReportedDead(tx, provider)) <= limits.leastDead) {
    return { isHeld: false, stoppedAt: undefined };
  }
  const stopped = await tx
    .update(providerStates)
    .set({ removalsHeldAt: sql`now()` })
    .where(and(isProvider(provider), isNull(removalsHeldAt)))
    .returning({ provider: providerStates.provider });
  if (stopped.length === 0) return { isHeld: true, stoppedAt: undefined };
  const about = {
    provider: sql`${provider}::text`,
    users: sql`${users}::int`,
    deadUsers: sql`${deadUsers}::int`,
  };
  await tx.execute(recordEvent(PushEvents.removalsHeld, about));
  return { isHeld: true, stoppedAt: { users, deadUsers } };
}

/** The users of the devices that the provider has reported dead, without those that an operator has confirmed. */
async function usersReportedDead(tx: Database, provider: ProviderName): Promise<number> {
  const { userId, state, reportedAt } = deadReports;
  const isLate = gt(reportedAt, sql`now() - ${memory}`);
  const [row] = await tx
    .select({ users: countDistinct(userId) })
    .from(deadReports)
    .where(and(eq(deadReports.provider, provider), ne(state, "CONFIRMED"), isLate));
  return row?.users ?? 0;
}

const judged = selection({
  users: computed(integer, sql`count(*)::int`),
  deadUsers: computed(integer, sql`(count(*) filter (where is_dead))::int`),
});

/**
 * The last users about whom the provider has responded. Text, as the arrays are joined in the database. None is counted
 * where the sums of the responses show that not too many are dead.
 */
function judgeUsers(
  tx: Database,
  provider: ProviderName,
  { maxDeadPercent, judgedUsers }: StopLimits,
): Promise<StoppedAt> {
  return onlyRow(
    tx,
    judged,
    sql`
      with newest as (
        select * from (
          select *, sum(${response.userCount}) over (order by ${response.id} desc) - ${response.userCount} as newer_users
          from (
            select * from ${providerResponses}
            where ${response.provider} = ${provider} and ${response.at} > now() - ${memory}
            order by ${response.id} desc limit ${judgedUsers}::int
          ) as recent
        ) as summed
        where newer_users < ${judgedUsers * responsesPerUser}::int
      ), last_responses as (
        select distinct on (hashed_user) hashed_user, is_dead, ${response.id}
        from newest cross join lateral (
          select unnest(${response.aliveHashes}), false union all select unnest(${response.deadHashes}), true
        ) as responses (hashed_user, is_dead)
        where (select sum(${response.deadUserCount}) * 100 > max(${response.userCount}) * ${maxDeadPercent}::int from newest)
        order by hashed_user, ${response.id} desc
      )
      select ${judged} from (
        select is_dead from last_responses order by ${response.id} desc, hashed_user limit ${judgedUsers}::int
      ) as judged_users`,
  );
}

/** Marks a notification whose dead devices are kept because the removals of their provider are stopped. */
export async function markRemovalStopped(db: Database, notificationId: string): Promise<void> {
  await db
    .update(notifications)
    .set({ removalStoppedAt: sql`now()` })
    .where(and(eq(notifications.id, notificationId), isNull(notifications.removalStoppedAt)));
}

/**
 * Ends the stop: the devices that wait are removed, or their reports are discarded; then users are judged anew.
 * @returns how many devices were waiting
 */
export function decideRemovals(
  db: Database,
  provider: ProviderName,
  decision: "confirm" | "discard",
): Promise<number> {
  const isWaiting = and(eq(deadReports.provider, provider), eq(deadReports.state, "WAITING"));
  const { deviceId } = deadReports;
  return db.transaction(async (tx) => {
    const decided =
      decision === "confirm"
        ? await tx.update(deadReports).set({ state: "CONFIRMED" }).where(isWaiting).returning({ deviceId })
        : await tx.delete(deadReports).where(isWaiting).returning({ deviceId });
    if (decided.length === 0) await confirmCommit(tx);
    await tx.update(providerStates).set({ removalsHeldAt: null }).where(isProvider(provider));
    await tx.delete(providerResponses).where(eq(providerResponses.provider, provider));
    return decided.length;
  });
}
