/**
 * Chunks in the hands of a worker: how one is taken, with what it needs to be sent, or why it is not. Whether
 * a notification or a device has expired is judged by the database's clock, which all workers share.
 */
import { type SQL, sql } from "drizzle-orm";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { boolean, integer, nullable, number } from "../../platform/database/readers.ts";
import { computed, prepared, rawRows, rows, selection } from "../../platform/database/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { deliveryChunks, devices, notifications, providerPaces } from "../schema.ts";
import { shortenPause } from "./rate-limiter.ts";

/** A chunk that this worker has taken: `attempt` is its proof. */
export interface TakenChunk {
  readonly id: number;
  readonly attempt: number;
  /** Devices that it still had when it was taken. */
  readonly devices: number;
  readonly retries: number;
  /** Why it was retried before; null if it was not. */
  readonly reason: string | null;
  /** Milliseconds since its first attempt. */
  readonly ageMs: number;
  readonly notification: {
    readonly id: string;
    readonly title: string;
    readonly message: string;
    readonly image: string | null;
    /** Milliseconds since the epoch. */
    readonly expiresAt: number;
    readonly acceptedAt: number;
  };
  /** Failures of the provider in a row before it was taken. */
  readonly failures: number;
  /** Share of the ceiling that the provider takes at the moment. */
  readonly share: number;
}

/** A device that can be sent to. */
export interface DeliveryDevice {
  readonly id: number;
  readonly token: string;
  /** Milliseconds since the epoch. */
  readonly renewedAt: number;
}

/** Counts of a chunk that is not sent now, and of what becomes of it. */
interface RefusedChunk {
  readonly notificationId: string;
  /** Devices that were dropped with it; undefined: it was not ended here. */
  readonly dropped: number | undefined;
  /** Milliseconds after which it is looked at again; undefined: it is not, no job is needed. */
  readonly againInMs: number | undefined;
}

const millis = (moment: SQL) => sql`(extract(epoch from ${moment}) * 1000)::float8`;

const chunk = names(deliveryChunks);
const c = names(deliveryChunks, "c");
const d = names(devices, "d");
const n = names(notifications, "n");
const p = names(providerPaces, "p");

/**
 * The states of a chunk that a job is about. One that is being sent is that of a job that is tried again, whose
 * worker has died. To any other job it is none of its business: where a notification was paused and resumed, the
 * job from before may still be there beside the new one.
 */
const statesFor = (isRetry: boolean) => (isRetry ? "{PENDING,SENDING}" : "{PENDING}");

const takenChunk = selection({
  id: c.id,
  attempt: c.attempt,
  devices: computed(integer, sql`cardinality(${c.deviceIds})`),
  retries: c.retries,
  reason: c.reason,
  ageMs: computed(number, millis(sql`now() - ${c.firstAttemptAt}`)),
});
const itsNotification = selection({
  notificationId: n.id,
  title: n.title,
  message: n.message,
  image: n.image,
  expiresAt: computed(number, millis(n.expiresAt)),
  acceptedAt: computed(number, millis(n.acceptedAt)),
});
/** Of the provider; nulls where it has none yet. */
const itsPace = selection({ failures: p.failures, share: p.share });

const updateTaken = prepared(
  ["provider", "id", "states"],
  ({ provider, id, states }) => sql`
    update ${deliveryChunks} c
    set ${chunk.state} = 'SENDING', ${chunk.attempt} = ${c.attempt} + 1,
      ${chunk.firstAttemptAt} = coalesce(${c.firstAttemptAt}, now()), ${chunk.updatedAt} = now()
    from ${notifications} n left join ${providerPaces} p on ${p.provider} = ${provider}
    where ${c.id} = ${id}::bigint and ${c.provider} = ${provider} and ${c.state} = any(${states}::text[])
      and ${n.id} = ${c.notificationId} and ${n.state} not in ('PAUSED', 'CANCELLED') and ${n.expiresAt} > now()
      and (${p.pausedUntil} is null or ${p.pausedUntil} <= now())
    returning ${takenChunk}, ${itsNotification}, ${itsPace}`,
);

/**
 * Takes the chunk, if it is to be sent now. Whoever had it before can write it no more.
 * @param isRetry whether its job was in the hands of a worker before
 *
 * No lock is needed on the notification: who pauses or cancels it at the same time finds this chunk either
 * still PENDING or SENDING, and its worker looks.
 */
export async function takeChunk(
  db: Database,
  provider: ProviderName,
  id: number,
  isRetry: boolean,
): Promise<TakenChunk | undefined> {
  const [row] = await rawRows(db, updateTaken({ provider, id, states: statesFor(isRetry) }));
  if (!row) return undefined;
  const { notificationId, ...notification } = itsNotification.read(row);
  const pace = itsPace.readJoined(row, "share") ?? { failures: 0, share: 1 };
  return { ...takenChunk.read(row), notification: { id: notificationId, ...notification }, ...pace };
}

const foundDevice = selection({
  id: d.id,
  token: d.token,
  renewedAt: computed(number, sql`d.renewed`),
});

const selectDevices = prepared(["provider", "id"], ({ provider, id }) => {
  const device = names(devices);
  return sql`
    select ${foundDevice}
    from ${deliveryChunks} c cross join unnest(${c.deviceIds}) as chosen (chosen_id)
      cross join lateral (
        select ${device.id}, ${device.token}, ${millis(device.renewedAt)} as renewed from ${devices}
        where ${device.id} = chosen_id and ${device.provider} = ${provider} and ${device.expiresAt} > now() offset 0
      ) d
    where ${c.id} = ${id}::bigint
    order by ${d.id}`;
});

/**
 * Those of the chunk's devices that are still registered with the provider and have not expired. Each is looked up
 * by its id (`offset 0` sees to that): a plan that was made while the table was small would otherwise read all of
 * it, and be kept while it grows.
 */
export async function loadDevices(
  db: Database,
  provider: ProviderName,
  id: number,
): Promise<DeliveryDevice[]> {
  return rows(db, foundDevice, selectDevices({ provider, id }));
}

const heldNotification = selection({
  id: n.id,
  state: n.state,
  isExpired: computed(boolean, sql`${n.expiresAt} <= now()`),
});

/**
 * What becomes of a chunk that could not be taken, in the transaction that ends its job: held while its
 * notification is paused, dropped if that is cancelled or expired, otherwise looked at again when the provider's
 * pause is over.
 * @param isRetry whether its job was in the hands of a worker before
 * @returns undefined if there is nothing to do: it is held, has ended already, or another job's worker has it
 */
export async function refuseChunk(
  tx: Database,
  provider: ProviderName,
  id: number,
  isRetry: boolean,
): Promise<RefusedChunk | undefined> {
  await shortenPause(tx, provider);
  const pause = sql`select ${millis(sql`${p.pausedUntil} - now()`)} from ${providerPaces} p`;
  const providerPause = selection({
    pausedMs: computed(nullable(number), sql`(${pause} where ${p.provider} = ${provider})`),
  });
  const [row] = await rawRows(
    tx,
    sql`
      select ${heldNotification}, ${providerPause}
      from ${notifications} n
      where ${n.id} = (select ${c.notificationId} from ${deliveryChunks} c where ${c.id} = ${id}::bigint)
      for share of n`,
  );
  if (!row) return undefined;
  const open = selection({ devices: computed(integer, sql`cardinality(${chunk.deviceIds})`) });
  const [refused] = await rows(
    tx,
    open,
    sql`
      select ${open} from ${deliveryChunks}
      where ${chunk.id} = ${id}::bigint and ${chunk.state} = any(${statesFor(isRetry)}::text[]) for update`,
  );
  if (!refused) return undefined;
  const { id: notificationId, state, isExpired } = heldNotification.read(row);
  const { pausedMs } = providerPause.read(row);
  if (state === "CANCELLED" || isExpired) {
    await tx.execute(sql`
      update ${deliveryChunks}
      set ${chunk.state} = 'DONE', ${chunk.dropped} = ${chunk.dropped} + cardinality(${chunk.deviceIds}),
        ${chunk.deviceIds} = '{}', ${chunk.updatedAt} = now()
      where ${chunk.id} = ${id}::bigint`);
    return { notificationId, dropped: refused.devices, againInMs: undefined };
  }
  if (state === "PAUSED") {
    await tx.execute(sql`
      update ${deliveryChunks}
      set ${chunk.state} = 'HELD', ${chunk.retries} = 0, ${chunk.firstAttemptAt} = null, ${chunk.updatedAt} = now()
      where ${chunk.id} = ${id}::bigint`);
    return { notificationId, dropped: undefined, againInMs: undefined };
  }
  // It is nobody's until its new job comes: that one does not know of a worker before.
  await tx.execute(sql`
    update ${deliveryChunks} set ${chunk.state} = 'PENDING', ${chunk.updatedAt} = now()
    where ${chunk.id} = ${id}::bigint and ${chunk.state} = 'SENDING'`);
  return { notificationId, dropped: undefined, againInMs: Math.max(pausedMs ?? 0, 0) };
}
