/**
 * Compares three things when all is over: what the fakes accepted, what the service's tables say, and what the harness
 * wrote down itself. What is wrong is a red line.
 */
import type postgres from "postgres";
import type { Repeat } from "../../src/development/provider-fakes/ledger.ts";
import { messageId } from "../../src/push/delivery/message-id.ts";
import { isHealthy, ledgerToken } from "./audience.ts";
import { type Fakes, type Provider, providers } from "./fakes.ts";
import type { LagAt } from "./lag.ts";
import { explanation } from "./repeats.ts";
import type { Played } from "./troubles.ts";
import type { Sent } from "./work.ts";
import { maxPerSecond } from "./world.ts";

export interface Verdict {
  readonly messages: number;
  /** Messages that arrived again, by what explains it. */
  readonly repeats: ReadonlyMap<string, number>;
  /** Most messages to one provider within a second. */
  readonly peakPerSecond: number;
  /** The longest time after the answer to a pause or cancelling after which a message arrived; milliseconds. */
  readonly latestAfterStop: number;
  /** What is wrong, by kind: how often, and the first of it in words. */
  readonly red: ReadonlyMap<string, { count: number; readonly first: string[] }>;
}

interface Device {
  readonly id: number;
  readonly provider: Provider;
  readonly utcOffset: number;
  readonly isHealthy: boolean;
  readonly isDeleted: boolean;
  /** It was there before the first notification was sent. */
  readonly wasFirst: boolean;
}

/** What a notification's rows say. */
interface Account {
  readonly planned: number;
  readonly sent: number;
  readonly failed: number;
  readonly dropped: number;
  readonly left: number;
  /** Devices of dead letters. */
  readonly dead: ReadonlySet<number>;
  readonly isCancelled: boolean;
}

/**
 * Milliseconds after the answer to a pause or cancelling in which messages may still arrive: a second until no process
 * begins one any more, and one for what had been handed to connections by then, as the machine is busy. So late as the
 * machine is, so late is what arrives noted.
 */
const stopMs = 2_000;
/** Milliseconds in which a process that stood still writes what it had begun. */
const thawMs = 500;
/**
 * Messages within a second beyond the limit: what each of the four processes has reserved and kept waiting while it, or
 * what it checks with, stood still goes out at once.
 */
const burst = 4 * (maxPerSecond / 2);
const shown = 5;

export const redKinds = [
  "lost",
  "planned twice",
  "not in the audience",
  "twice",
  "under another id",
  "after a stop",
  "counted wrongly",
  "history wrong",
  "given up",
  "faster than the limit",
] as const;
type RedKind = (typeof redKinds)[number];

export async function judge(
  admin: postgres.Sql,
  fakes: Fakes,
  sent: readonly Sent[],
  played: readonly Played[],
  lagAt: LagAt,
): Promise<Verdict> {
  const red = new Map<string, { count: number; first: string[] }>();
  const byToken = await loadDevices(admin);
  const byId = new Map(byToken.values().map((device) => [device.id, device]));
  const bySend = new Map(sent.map((one) => [one.id, one]));
  const got = new Map<string, Set<number>>(sent.map(({ id }) => [id, new Set()]));
  const repeats = new Map<string, number>();
  const freezes = played.filter(({ trouble }) => trouble.breaks === "time");
  let [messages, peakPerSecond, latestAfterStop] = [0, 0, 0];

  function mark(kind: RedKind, what: string): void {
    const line = red.get(kind) ?? { count: 0, first: [] };
    line.count += 1;
    if (line.first.length < shown) line.first.push(what);
    red.set(kind, line);
  }

  /** Whether it may have been begun before the stop by a process that stood still, and was written when that went on. */
  const isThawed = (at: number, from: number) =>
    freezes.some(
      ({ startedAt, endedAt }) =>
        startedAt <= from + stopMs && at >= endedAt && at <= endedAt + thawMs + lagAt(at),
    );

  function checkStops(one: Sent, at: number, what: string): void {
    const stops = one.cancelledAt === undefined ? [] : [{ from: one.cancelledAt, to: Infinity }];
    for (const { from, to } of [...one.pauses, ...stops]) {
      if (at < from || at >= to) continue;
      const after = at - from;
      if (isThawed(at, from)) continue;
      latestAfterStop = Math.max(latestAfterStop, after);
      if (after > stopMs && after > stopMs + lagAt(at))
        mark("after a stop", `${what}: ${after} ms after ${iso(from)}`);
    }
  }

  function checkMessage(
    device: Device,
    one: Sent,
    message: { readonly messageId: string; count: number; firstAt: number; lastAt: number },
  ): void {
    const what = `${one.id} to device ${device.id}`;
    if (!one.utcOffsets.includes(device.utcOffset)) mark("not in the audience", what);
    if (message.messageId !== messageId(one.id, device.id)) mark("under another id", what);
    got.get(one.id)?.add(device.id);
    checkStops(one, message.firstAt, what);
    if (message.count > 1) checkStops(one, message.lastAt, what);
  }

  function checkRepeat(repeat: Repeat): void {
    const why = explanation(repeat, played, lagAt);
    if (why !== undefined) {
      repeats.set(why, (repeats.get(why) ?? 0) + 1);
      return;
    }
    const { at, token, collapseId, before } = repeat;
    const times = [before.at, before.answeredAt, before.endedAt, at].map((time) => time && iso(time));
    mark("twice", `${collapseId} to ${token}: came, was answered, lost its connection, came: ${times}`);
  }

  for (const provider of providers) {
    for await (const entry of fakes.entries(provider)) {
      messages += entry.count;
      const device = byToken.get(`${provider} ${entry.token}`);
      for (const message of entry.messages) {
        const one = bySend.get(message.collapseId ?? "");
        if (device && one) checkMessage(device, one, message);
        else mark("not in the audience", `${provider} ${entry.token}: ${message.collapseId}`);
      }
    }
    for (const repeat of await fakes.repeats(provider)) checkRepeat(repeat);
  }

  /** Of a notification that was not cancelled: each device that was there has its message, or its place in the counts. */
  function checkLost(one: Sent, planned: ReadonlySet<number>, has: (device: Device) => boolean): void {
    for (const device of byId.values()) {
      const { id, provider, isDeleted } = device;
      if (isDeleted || has(device)) continue;
      const isMeant = device.wasFirst && one.utcOffsets.includes(device.utcOffset);
      if (planned.has(id)) mark("lost", `${one.id} to device ${id} (${provider})`);
      else if (isMeant) mark("lost", `${one.id} was not planned for device ${id}`);
    }
  }

  async function checkSend(one: Sent): Promise<void> {
    const [account, ids] = await Promise.all([accountOf(admin, one.id), plannedOf(admin, one.id)]);
    const accepted = got.get(one.id) ?? new Set();
    const planned = new Set(ids);
    if (planned.size !== account.planned)
      mark("planned twice", `${one.id}: ${account.planned} planned, ${planned.size} devices`);
    for (const id of accepted) if (!planned.has(id)) mark("not in the audience", `${one.id} to device ${id}`);
    // A device is given up after an hour of failures, or if its job fails each time: neither happens in such a run.
    if (account.dead.size > 0) mark("given up", `${one.id}: ${account.dead.size} devices`);
    if (!account.isCancelled) {
      const { dead } = account;
      checkLost(one, planned, ({ id, isHealthy }) =>
        isHealthy ? accepted.has(id) || dead.has(id) : planned.has(id),
      );
    }
    const devices = ids.flatMap((id) => byId.get(id) ?? []);
    for (const problem of countsWrong(account, devices, accepted))
      mark(
        "counted wrongly",
        `${one.id}: ${problem}; ${JSON.stringify({ ...account, dead: account.dead.size })}`,
      );
    const wrong = await historyWrong(admin, one.id);
    if (wrong > 0) mark("history wrong", `${one.id}: of ${wrong} users`);
  }

  for (const one of sent) await checkSend(one);
  for (const [provider, summary] of Object.entries(await fakes.summary())) {
    peakPerSecond = Math.max(peakPerSecond, summary.peakPerSecond);
    if (summary.peakPerSecond > maxPerSecond + burst)
      mark("faster than the limit", `${provider}: ${summary.peakPerSecond} within a second`);
  }
  return { messages, repeats, peakPerSecond, latestAfterStop, red };
}

/** What of the counts the ledger and the devices' fates do not explain. */
function countsWrong(
  { sent, failed, dropped, left, dead, isCancelled }: Account,
  planned: readonly Device[],
  accepted: ReadonlySet<number>,
): string[] {
  const unhealthy = planned.filter((device) => !device.isHealthy);
  const deleted = planned.filter(({ isDeleted }) => isDeleted);
  const certain = unhealthy.filter(({ id, isDeleted }) => !isDeleted && !dead.has(id) && !accepted.has(id));
  return [
    ...(left > dead.size ? [`${left - dead.size} are left`] : []),
    ...(sent > accepted.size ? [`${accepted.size} were accepted`] : []),
    // Broken connections are the fakes' first concern: they accept what they would have refused. And what was accepted without an answer may have been dropped or given up afterwards.
    ...(accepted.size - sent > dropped + dead.size + failed ? [`${accepted.size} were accepted`] : []),
    ...(failed > unhealthy.length ? [`only ${unhealthy.length} had to fail`] : []),
    ...(!isCancelled && failed < certain.length ? [`${certain.length} had to fail`] : []),
    ...(!isCancelled && dropped > deleted.length ? [`only ${deleted.length} were deleted meanwhile`] : []),
  ];
}

async function loadDevices(admin: postgres.Sql): Promise<Map<string, Device>> {
  const rows = await admin<(Omit<Device, "isHealthy"> & { readonly token: string })[]>`
    select id::float8 as id, provider, token, utc_offset as "utcOffset", deleted_at is not null as "isDeleted",
      was_first as "wasFirst"
    from chaos.devices`;
  return new Map(
    rows.map(({ token, ...device }) => {
      const name = ledgerToken(device.provider, token);
      return [`${device.provider} ${name}`, { ...device, isHealthy: isHealthy(device.provider, name) }];
    }),
  );
}

async function accountOf(admin: postgres.Sql, id: string): Promise<Account> {
  const [sums] = await admin<{ planned: number; sent: number; failed: number; dropped: number }[]>`
    select coalesce(sum(planned), 0)::int as planned, coalesce(sum(sent), 0)::int as sent,
      coalesce(sum(failed), 0)::int as failed, coalesce(sum(dropped), 0)::int as dropped
    from push.delivery_chunks where notification_id = ${id}`;
  const dead = await admin<{ id: number }[]>`
    select unnest(device_ids)::float8 as id from push.delivery_chunks
    where notification_id = ${id} and state = 'DEAD'`;
  const [row] = await admin<{ isCancelled: boolean }[]>`
    select state = 'CANCELLED' as "isCancelled" from push.notifications where id = ${id}`;
  if (sums === undefined || row === undefined) throw new Error(`notification ${id} is not there`);
  const left = sums.planned - sums.sent - sums.failed - sums.dropped;
  return { ...sums, ...row, left, dead: new Set(dead.map((one) => one.id)) };
}

async function plannedOf(admin: postgres.Sql, id: string): Promise<number[]> {
  const rows = await admin<{ id: number }[]>`
    select device_id::float8 as id from chaos.planned where notification_id = ${id}`;
  return rows.map((row) => row.id);
}

/**
 * Users who have a planned device and no entry, or an entry and no planned device. Users without any device left may
 * have been forgotten, and their entries with them.
 */
async function historyWrong(admin: postgres.Sql, id: string): Promise<number> {
  const [found] = await admin<{ wrong: number }[]>`
    with planned as (
      select d.user_id, bool_or(d.deleted_at is null) as has_device
      from chaos.planned p join chaos.devices d on d.id = p.device_id where p.notification_id = ${id}
      group by d.user_id
    ), entry as (
      select u.user_id from push.history_blocks b
      join push.history_users u on u.user_number / 512 = b.user_block
        and get_bit(b.recipient_bits, (u.user_number % 512)::int) = 1
      where b.notification_id = ${id}
    )
    select count(*)::int as wrong from planned full join entry using (user_id)
    where planned.user_id is null or (entry.user_id is null and planned.has_device)`;
  return found?.wrong ?? 0;
}

const iso = (at: number) => new Date(at).toISOString();
