/** Removes the devices that their providers have reported dead, in steps, when their delay is over. */
import { and, eq, lt, lte, ne, notExists, or, sql } from "drizzle-orm";
import { every, type Loop } from "../../platform/base/loop.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { removeDeadDevices } from "../devices/remove-devices.ts";
import type { ProviderName } from "../provider-settings.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import { deadReports, devices, providerResponses, providerStates } from "../schema.ts";
import { memory, type StopLimits, stopIfTooMany } from "./removal-stop.ts";

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
