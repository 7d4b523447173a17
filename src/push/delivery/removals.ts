/**
 * Dead devices: what providers respond about their users, which devices they report dead, and the removal of these, in
 * steps, when their delay is over.
 */
import { and, eq, lt, lte, ne, notExists, or, sql } from "drizzle-orm";
import { every, type Loop } from "../../platform/base/loop.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { prepared } from "../../platform/database/sql/statements.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { removeDeadDevices } from "../devices/remove-devices.ts";
import type { ProviderName } from "../provider-settings.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import { deadReports, providerResponses } from "../removals-schema.ts";
import { devices, providerStates } from "../schema.ts";
import { insertProviderState } from "./provider-pauses.ts";
import { memory, type Removals, type StopLimits, stopIfTooMany } from "./removal-stop.ts";
import type { Outcomes } from "./tally.ts";

const report = names(deadReports);
const known = names(deadReports, "known");
const owned = names(devices);
const response = names(providerResponses);

/** What a provider has responded about the users of a chunk. */
export type Responses = Readonly<Pick<Outcomes, "users" | "sent" | "dead">>;

// One statement, as each chunk runs it.
const insertResponses = prepared(
  ["provider", "users", "deadUsers", "aliveHashes", "deadHashes", "sent"],
  (parameter) => sql`
    with alive as (
      delete from ${deadReports}
      where ${report.deviceId} = any(${parameter.sent}::bigint[]) and ${report.provider} = ${parameter.provider}
        and ${report.state} = 'WAITING'
    )
    insert into ${providerResponses} (${response.provider}, ${response.at}, ${response.userCount}, ${response.deadUserCount},
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
  const alive: number[] = [];
  const dead: number[] = [];
  for (const [userId, isAlive] of users) (isAlive ? alive : dead).push(userHash(userId));
  await tx.execute(
    insertResponses({
      ...{ provider, users: users.size, deadUsers: dead.length },
      aliveHashes: arrayLiteral(alive),
      deadHashes: arrayLiteral(dead),
      sent: arrayLiteral(sent),
    }),
  );
}

/** Records reports of dead devices, and stops the removals of the provider if there are too many. */
export async function recordDead(
  tx: Database,
  provider: ProviderName,
  dead: Responses["dead"],
  limits: StopLimits,
): Promise<Removals> {
  // A device that was kept because it was renewed, and is dead all the same, is reported anew.
  const anew = sql`${known.state} = 'REMOVED'`;
  await tx.execute(sql`
    insert into ${deadReports} as known (${report.deviceId}, ${report.provider}, ${report.userId}, ${report.asOf},
      ${report.reportedAt}, ${report.state})
    select device, ${provider}, reported_user, to_timestamp(died / 1000), now(), 'WAITING'
    from unnest(${arrayLiteral(dead.map(({ deviceId }) => deviceId))}::bigint[],
      ${arrayLiteral(dead.map(({ userId }) => userId))}::text[],
      ${arrayLiteral(dead.map(({ asOf }) => asOf))}::float8[]) as reported (device, reported_user, died)
    where exists (select from ${devices} where ${owned.id} = device and ${owned.userId} = reported_user)
    order by device
    on conflict (${report.deviceId}) do update
    set ${report.asOf} = greatest(${known.asOf}, excluded.${report.asOf}),
      ${report.reportedAt} = case when ${anew} then now() else ${known.reportedAt} end,
      ${report.userId} = case when ${anew} then excluded.${report.userId} else ${known.userId} end,
      ${report.state} = case when ${anew} then 'WAITING' else ${known.state} end`);
  await insertProviderState(tx, provider, wholeProvider);
  return stopIfTooMany(tx, provider, limits);
}

/** A hash of a user's id, of 32 bits, by which nobody is identified. FNV-1a with the finalizer of MurmurHash3. */
function userHash(userId: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < userId.length; at += 1) hash = Math.imul(hash ^ userId.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}

interface RemovalLimits extends StopLimits {
  readonly removalDelaySeconds: number;
}

interface Dependencies {
  readonly db: Database;
  readonly providers: readonly ProviderName[];
  readonly limits: RemovalLimits;
  readonly logger: Logger;
}

/** Milliseconds between rounds at most, and at least: a short delay is to be noticed. */
const longestRoundMs = 10_000;
const shortestRoundMs = 250;
/** Devices that one step removes. */
const batchSize = 1_000;

/** Runs rounds until stopped, on every process; no device is taken by two. A round that fails is logged. */
export function startRemovals({ db, providers, limits, logger }: Dependencies): Loop {
  const delayMs = limits.removalDelaySeconds * 1000;
  return every(
    Math.max(shortestRoundMs, Math.min(longestRoundMs, delayMs / 4)),
    async (stopping) => {
      for (const provider of providers) {
        while (!stopping.aborted && (await removeDue(db, provider, limits)));
      }
      await forgetOld(db);
    },
    (err) => logger.warn({ err }, "Dead devices could not be removed yet"),
  );
}

/**
 * One step: removes the devices that are due, unless the removals of their provider are stopped.
 * @returns whether more may be due
 */
export function removeDue(db: Database, provider: ProviderName, limits: RemovalLimits): Promise<boolean> {
  return db.transaction(async (tx) => {
    const { isHeld } = await stopIfTooMany(tx, provider, limits);
    const { deviceId, asOf, state, reportedAt } = deadReports;
    const delay = sql`make_interval(secs => ${limits.removalDelaySeconds}::int)`;
    const isOver = and(eq(state, "WAITING"), lte(reportedAt, sql`now() - ${delay}`));
    const isDue = or(eq(state, "CONFIRMED"), isHeld ? undefined : isOver);
    const found = await tx
      .select({ deviceId, asOf })
      .from(deadReports)
      .where(and(eq(deadReports.provider, provider), isDue))
      .orderBy(deviceId)
      .limit(batchSize)
      .for("update", { skipLocked: true });
    if (found.length === 0) return false;
    const dead = found.map((report) => ({ ...report, asOf: report.asOf.getTime() }));
    await removeDeadDevices(tx, dead);
    const ids = arrayLiteral(dead.map((report) => report.deviceId));
    const isRemoved = sql`${deviceId} = any(${ids}::bigint[])`;
    await tx.update(deadReports).set({ state: "REMOVED" }).where(isRemoved);
    return found.length === batchSize;
  });
}

/**
 * Forgets what the safety stop no longer looks back on, reports of devices that are gone, and origins paused long ago.
 */
async function forgetOld(db: Database): Promise<void> {
  const longAgo = sql`now() - ${memory}`;
  const { deviceId, state, reportedAt } = deadReports;
  const device = db.select({ id: devices.id }).from(devices).where(eq(devices.id, deviceId));
  const isOld = and(eq(state, "REMOVED"), lt(reportedAt, longAgo));
  await db.delete(deadReports).where(or(isOld, and(ne(state, "REMOVED"), notExists(device))));
  await db.delete(providerResponses).where(lt(providerResponses.at, longAgo));
  const { service, pausedUntil, since } = providerStates;
  const isOldOrigin = and(ne(service, wholeProvider), sql`greatest(${pausedUntil}, ${since}) < ${longAgo}`);
  await db.delete(providerStates).where(isOldOrigin);
}
