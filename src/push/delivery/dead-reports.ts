/**
 * The safety stop of removals. A token that its provider reports dead is removed after a delay. If a provider reports
 * an unusual share of its last users dead, over all notifications, the reports are more likely wrong than right: then
 * no token is removed until an operator decides. Each user counts once, with the last response about that user, and
 * many users must be concerned, so that no single user's registrations can stop removal.
 */
import { sql } from "drizzle-orm";
import { confirmCommit } from "../../platform/database/confirm.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/names.ts";
import { boolean, integer, number } from "../../platform/database/sql/readers.ts";
import {
  computed,
  epochMs,
  prepared,
  rowCount,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import type { DeadDevice } from "../devices/remove-dead.ts";
import { PushEvents, recordEvent } from "../events.ts";
import type { ProviderName } from "../provider-settings.ts";
import { isWholeProvider, wholeProvider } from "../queue/provider-rows.ts";
import { deadReports, devices, notifications, providerResponses, providerStates } from "../schema.ts";
import type { DeliveryRules } from "./delivery-rules.ts";
import { insertProviderState } from "./provider-pauses.ts";
import { userHash } from "./user-hash.ts";

const report = names(deadReports);
const owned = names(devices);
const response = names(providerResponses);
const providerState = names(providerStates);

/** How long the safety stop looks back at most. */
const memory = sql`interval '1 day'`;
/**
 * On how many responses the safety stop looks back at most, for each user that it judges: the newest may be about few
 * users.
 */
const responsesPerUser = 4;

/** Removes devices unless they were registered or renewed at `asOf` or later. */
export type RemoveDeadDevices = (tx: Database, dead: readonly DeadDevice[]) => Promise<unknown>;

/** What a provider has responded about the users of a chunk. */
export interface Responses {
  /** Users with an accepted or a dead device, and whether a device of theirs was accepted. */
  readonly users: ReadonlyMap<string, boolean>;
  /** Ids of the accepted devices. */
  readonly sent: readonly number[];
  readonly dead: readonly (DeadDevice & { readonly userId: string })[];
}

export interface StopLimits extends Pick<DeliveryRules, "leastDead" | "judgedUsers"> {
  /** Percent of the judged users. */
  readonly maxDeadPercent: number;
}

/** The state of removals after reports of dead devices were stored. */
export interface Removals {
  /** Whether dead devices are kept, as the removals of the provider are stopped. */
  readonly isHeld: boolean;
  /** The users who were judged when the removals were stopped, if these reports did it. */
  readonly stoppedAt: StoppedAt | undefined;
}

/** The users who were judged when the removals were stopped. */
export interface StoppedAt {
  readonly users: number;
  readonly deadUsers: number;
}

const insertResponses = prepared(
  ["provider", "users", "deadUsers", "aliveHashes", "deadHashes", "sent"],
  (parameter) => sql`
    with alive as (
      delete from ${deadReports}
      where ${report.deviceId} = any(${parameter.sent}::bigint[]) and ${report.provider} = ${parameter.provider}
        and ${report.state} = 'WAITING'
    )
    insert into ${providerResponses} (${response.provider}, ${response.at}, ${response.users}, ${response.deadUsers},
      ${response.aliveHashes}, ${response.deadHashes})
    values (${parameter.provider}, now(), ${parameter.users}::int, ${parameter.deadUsers}::int,
      ${parameter.aliveHashes}::int[], ${parameter.deadHashes}::int[])`,
);

/** Records what a provider has responded. A device that it accepts is alive, whatever it reported before. */
export async function recordResponses(
  tx: Database,
  provider: ProviderName,
  { users, sent }: Responses,
): Promise<void> {
  if (users.size === 0) return;
  const hashes: Record<"alive" | "dead", string[]> = { alive: [], dead: [] };
  for (const [userId, isAlive] of users) hashes[isAlive ? "alive" : "dead"].push(String(userHash(userId)));
  await tx.execute(
    insertResponses({
      provider,
      users: users.size,
      deadUsers: hashes.dead.length,
      aliveHashes: arrayLiteral(hashes.alive),
      deadHashes: arrayLiteral(hashes.dead),
      sent: arrayLiteral(sent.map(String)),
    }),
  );
}

const held = selection({ isHeld: computed(boolean, sql`${providerState.removalsHeldAt} is not null`) });
const stopped = selection({
  users: computed(integer, sql`judged.users`),
  deadUsers: computed(integer, sql`judged.dead_users`),
});

/**
 * Records reports of dead devices, and stops the removals of the provider if there are too many.
 * @returns whether the removals are stopped, and the users who were judged if they were stopped just now
 */
export async function recordDead(
  tx: Database,
  provider: ProviderName,
  dead: Responses["dead"],
  limits: StopLimits,
): Promise<{ readonly isHeld: boolean; readonly stoppedAt: StoppedAt | undefined }> {
  const inOrder = dead.toSorted((a, b) => a.deviceId - b.deviceId);
  const list = (values: readonly (string | number)[]) => arrayLiteral(values.map(String));
  await tx.execute(sql`
    insert into ${deadReports} as known (${report.deviceId}, ${report.provider}, ${report.userId}, ${report.asOf},
      ${report.reportedAt}, ${report.state})
    select device, ${provider}, reported_user, to_timestamp(died / 1000), now(), 'WAITING'
    from unnest(${list(inOrder.map(({ deviceId }) => deviceId))}::bigint[],
      ${list(inOrder.map(({ userId }) => userId))}::text[],
      ${list(inOrder.map(({ asOf }) => asOf))}::float8[]) as reported (device, reported_user, died)
    -- A user who has been forgotten meanwhile is not remembered here.
    where exists (select from ${devices} where ${owned.id} = device and ${owned.userId} = reported_user)
    order by device
    -- A device that was kept because it was renewed, and is dead all the same, is reported anew.
    on conflict (${report.deviceId}) do update
    set ${report.asOf} = greatest(known.${report.asOf}, excluded.${report.asOf}),
      ${report.reportedAt} = case when known.${report.state} = 'REMOVED' then now() else known.${report.reportedAt} end,
      ${report.userId} = case when known.${report.state} = 'REMOVED' then excluded.${report.userId} else known.${report.userId} end,
      ${report.state} = case when known.${report.state} = 'REMOVED' then 'WAITING' else known.${report.state} end`);
  await insertProviderState(tx, provider, wholeProvider);
  const stoppedAt = await holdIfTooMany(tx, provider, limits);
  if (stoppedAt) return { isHeld: true, stoppedAt };
  const [state] = await rows(
    tx,
    held,
    sql`select ${held} from ${providerStates} where ${isWholeProvider(providerState, provider)}`,
  );
  return { isHeld: state?.isHeld ?? false, stoppedAt: undefined };
}

/**
 * Stops the removals of the provider if it reports too many users dead. The users are only counted one by one if the
 * sums of the responses leave it open whether too many are dead: mostly they do not.
 * @returns the users who were judged, if the removals were stopped just now
 */
async function holdIfTooMany(
  tx: Database,
  provider: ProviderName,
  { maxDeadPercent, leastDead, judgedUsers }: StopLimits,
): Promise<StoppedAt | undefined> {
  const [stoppedAt] = await rows(
    tx,
    stopped,
    sql`
      with last as (
        select *, sum(${response.users}) over (order by ${response.id} desc) - ${response.users} as before
        from (
          select * from ${providerResponses}
          where ${response.provider} = ${provider} and ${response.at} > now() - ${memory}
          order by ${response.id} desc limit ${judgedUsers}::int
        ) as recent
      ), newest as (
        select ${response.id} as nth, ${response.users} as users, ${response.deadUsers} as dead_users,
          ${response.aliveHashes} as alive, ${response.deadHashes} as gone
        from last where before < ${judgedUsers * responsesPerUser}::int
      ), one_each as (
        select distinct on (one) one, is_dead, nth
        from newest cross join lateral (
          select unnest(alive), false union all select unnest(gone), true
        ) as responded (one, is_dead)
        where (select sum(dead_users) * 100 > max(users) * ${maxDeadPercent}::int from newest)
        order by one, nth desc
      ), judged as (
        select count(*)::int as users, (count(*) filter (where is_dead))::int as dead_users
        from (select is_dead from one_each order by nth desc, one limit ${judgedUsers}::int) as last_users
      )
      update ${providerStates} set ${providerState.removalsHeldAt} = now()
      from judged
      where ${isWholeProvider(providerState, provider)} and ${providerState.removalsHeldAt} is null
        and case when judged.dead_users * 100 > judged.users * ${maxDeadPercent}::int then (
          select count(distinct ${report.userId}) from ${deadReports}
          where ${report.provider} = ${provider} and ${report.state} <> 'CONFIRMED'
            and ${report.reportedAt} > now() - ${memory}
        ) > ${leastDead}::int else false end
      returning ${stopped}`,
  );
  if (stoppedAt) {
    const users = sql`${stoppedAt.users}::int`;
    const deadUsers = sql`${stoppedAt.deadUsers}::int`;
    const about = { provider: sql`${provider}::text` };
    await tx.execute(recordEvent(PushEvents.removalsHeld, { ...about, users, deadUsers }));
  }
  return stoppedAt;
}

/** Marks a notification whose dead devices are kept because the removals of their provider are stopped. */
export async function markRemovalStopped(db: Database, notificationId: string): Promise<void> {
  const { id, removalStoppedAt } = names(notifications);
  await db.execute(sql`
    update ${notifications} set ${removalStoppedAt} = now()
    where ${id} = ${notificationId}::uuid and ${removalStoppedAt} is null`);
}

const due = selection({
  deviceId: report.deviceId,
  asOf: computed(number, epochMs(report.asOf)),
});

/** Devices that one step removes. */
const batchSize = 1_000;

/**
 * One step: removes the devices that are due, unless the removals of their provider are held.
 * @returns whether more may be due
 */
export function removeDue(
  db: Database,
  provider: ProviderName,
  limits: StopLimits & { readonly removalDelaySeconds: number },
  removeDeadDevices: RemoveDeadDevices,
): Promise<boolean> {
  const { removalDelaySeconds } = limits;
  return db.transaction(async (tx) => {
    await holdIfTooMany(tx, provider, limits);
    const found = await rows(
      tx,
      due,
      sql`
        select ${due} from ${deadReports}
        where ${report.provider} = ${provider} and (
          ${report.state} = 'CONFIRMED'
          or ${report.state} = 'WAITING' and ${report.reportedAt} <= now() - make_interval(secs => ${removalDelaySeconds}::int)
            and not exists (
              select from ${providerStates}
              where ${isWholeProvider(providerState, provider)} and ${providerState.removalsHeldAt} is not null))
        order by ${report.deviceId} limit ${batchSize}::int for update skip locked`,
    );
    if (found.length === 0) return false;
    await removeDeadDevices(tx, found);
    await tx.execute(sql`
      update ${deadReports} set ${report.state} = 'REMOVED'
      where ${report.deviceId} = any(${arrayLiteral(found.map(({ deviceId }) => String(deviceId)))}::bigint[])`);
    return found.length === batchSize;
  });
}

/**
 * Forgets what the safety stop no longer looks back on, reports of devices that are gone, and origins paused long ago.
 */
export async function forgetOld(db: Database, provider: ProviderName): Promise<void> {
  await db.execute(sql`
    delete from ${deadReports}
    where ${report.provider} = ${provider} and (${report.state} = 'REMOVED' and ${report.reportedAt} < now() - ${memory}
      or ${report.state} <> 'REMOVED' and not exists (select from ${devices} where ${owned.id} = ${report.deviceId}))`);
  await db.execute(sql`
    delete from ${providerResponses} where ${response.provider} = ${provider} and ${response.at} < now() - ${memory}`);
  // Clients name the origins of browsers' push services, so there is no end to them.
  await db.execute(sql`
    delete from ${providerStates}
    where ${providerState.provider} = ${provider} and ${providerState.service} <> ${wholeProvider}
      and greatest(${providerState.pausedUntil}, ${providerState.since}) < now() - ${memory}`);
}

/**
 * Ends the stop of a provider's removals by an operator's decision: the devices that wait are removed, or their reports
 * are discarded. From then on the share of dead users is judged anew.
 * @returns how many devices were waiting
 */
export function decideRemovals(
  db: Database,
  provider: ProviderName,
  decision: "confirm" | "discard",
): Promise<number> {
  const isWaiting = sql`${report.provider} = ${provider} and ${report.state} = 'WAITING'`;
  return db.transaction(async (tx) => {
    const decided = await rowCount(
      tx,
      decision === "confirm"
        ? sql`update ${deadReports} set ${report.state} = 'CONFIRMED' where ${isWaiting} returning 1 as one`
        : sql`delete from ${deadReports} where ${isWaiting} returning 1 as one`,
    );
    if (decided === 0) await confirmCommit(tx);
    await tx.execute(sql`
      update ${providerStates} set ${providerState.removalsHeldAt} = null
      where ${isWholeProvider(providerState, provider)}`);
    await tx.execute(sql`delete from ${providerResponses} where ${response.provider} = ${provider}`);
    return decided;
  });
}
