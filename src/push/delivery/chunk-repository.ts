/**
 * Chunks in the hands of a worker: how one is taken, with what it needs to be sent, or why it is not. Whether
 * a notification or a device has expired is judged by the database's clock, which all workers share.
 */
import { sql } from "drizzle-orm";
import { type Database, rows } from "../../platform/database/database.ts";
import type { ProviderName } from "../provider-settings.ts";
import { shortenPause } from "./pace.ts";

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

const millis = (column: ReturnType<typeof sql>) => sql`(extract(epoch from ${column}) * 1000)::float8`;

/**
 * The states of a chunk that a job is about. One that is being sent is that of a job that is tried again, whose
 * worker has died. To any other job it is none of its business: where a notification was paused and resumed, the
 * job from before may still be there beside the new one.
 */
const statesFor = (isRetry: boolean) => sql`any(${isRetry ? "{PENDING,SENDING}" : "{PENDING}"}::text[])`;

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
  const [row] = await rows<{
    attempt: number;
    devices: number;
    retries: number;
    reason: string | null;
    age: number;
    notification: string;
    title: string;
    message: string;
    image: string | null;
    expires: number;
    accepted: number;
    failures: number | null;
    share: number | null;
  }>(
    db,
    sql`
      update push.delivery_chunks c
      set state = 'SENDING', attempt = c.attempt + 1, first_attempt_at = coalesce(c.first_attempt_at, now()),
        updated_at = now()
      from push.notifications n left join push.provider_paces p on p.provider = ${provider}
      where c.id = ${id}::bigint and c.provider = ${provider} and c.state = ${statesFor(isRetry)}
        and n.id = c.notification_id and n.state not in ('PAUSED', 'CANCELLED') and n.expires_at > now()
        and (p.paused_until is null or p.paused_until <= now())
      returning c.attempt, cardinality(c.device_ids) as devices, c.retries, c.reason,
        ${millis(sql`now() - c.first_attempt_at`)} as age, n.id::text as notification, n.title, n.message, n.image,
        ${millis(sql`n.expires_at`)} as expires, ${millis(sql`n.accepted_at`)} as accepted, p.failures, p.share`,
  );
  if (!row) return undefined;
  const { attempt, devices, retries, reason, title, message, image } = row;
  return {
    id,
    attempt,
    devices,
    retries,
    reason,
    ageMs: row.age,
    notification: {
      id: row.notification,
      title,
      message,
      image,
      expiresAt: row.expires,
      acceptedAt: row.accepted,
    },
    failures: row.failures ?? 0,
    share: row.share ?? 1,
  };
}

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
  const found = await rows<{ id: string; token: string; renewed: number }>(
    db,
    sql`
      select d.id::text, d.token, d.renewed
      from push.delivery_chunks c cross join unnest(c.device_ids) as chosen (device_id)
        cross join lateral (
          select id, token, ${millis(sql`renewed_at`)} as renewed from push.devices
          where id = chosen.device_id and provider = ${provider} and expires_at > now() offset 0
        ) d
      where c.id = ${id}::bigint
      order by d.id`,
  );
  return found.map((row) => ({ id: Number(row.id), token: row.token, renewedAt: row.renewed }));
}

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
  const [notification] = await rows<{ id: string; state: string; expired: boolean; paused: number | null }>(
    tx,
    sql`
      select n.id::text, n.state, n.expires_at <= now() as expired,
        (select ${millis(sql`p.paused_until - now()`)} from push.provider_paces p where p.provider = ${provider}) as paused
      from push.notifications n
      where n.id = (select c.notification_id from push.delivery_chunks c where c.id = ${id}::bigint)
      for share of n`,
  );
  if (!notification) return undefined;
  const [chunk] = await rows<{ devices: number }>(
    tx,
    sql`
      select cardinality(device_ids) as devices from push.delivery_chunks
      where id = ${id}::bigint and state = ${statesFor(isRetry)} for update`,
  );
  if (!chunk) return undefined;
  const { id: notificationId, state, expired, paused } = notification;
  if (state === "CANCELLED" || expired) {
    await tx.execute(sql`
      update push.delivery_chunks
      set state = 'DONE', dropped = dropped + cardinality(device_ids), device_ids = '{}', updated_at = now()
      where id = ${id}::bigint`);
    return { notificationId, dropped: chunk.devices, againInMs: undefined };
  }
  if (state === "PAUSED") {
    await tx.execute(sql`
      update push.delivery_chunks
      set state = 'HELD', retries = 0, first_attempt_at = null, updated_at = now() where id = ${id}::bigint`);
    return { notificationId, dropped: undefined, againInMs: undefined };
  }
  // It is nobody's until its new job comes: that one does not know of a worker before.
  await tx.execute(sql`
    update push.delivery_chunks set state = 'PENDING', updated_at = now() where id = ${id}::bigint and state = 'SENDING'`);
  return { notificationId, dropped: undefined, againInMs: Math.max(paused ?? 0, 0) };
}
