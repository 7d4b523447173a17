/** Gathers what the judge needs, when all is over: what the fakes accepted, and what the tables say. */
import type postgres from "postgres";
import { isBlocked, isHealthy, ledgerToken } from "./audience.ts";
import { type Fakes, providers } from "./fakes.ts";
import { type Account, type Circumstances, type Device, Judge, type Verdict } from "./judge.ts";
import type { Sent } from "./work.ts";

export async function judgeRun(
  admin: postgres.Sql,
  fakes: Fakes,
  sent: readonly Sent[],
  circumstances: Circumstances,
): Promise<Verdict> {
  const judging = new Judge(await loadDevices(admin), sent, circumstances);
  for (const provider of providers) {
    for await (const { token, messages } of fakes.entries(provider))
      for (const message of messages) judging.message(provider, token, message);
    for (const repeat of await fakes.repeats(provider)) judging.repeat(provider, repeat);
  }
  for (const one of sent) judging.account(one, await accountOf(admin, one.id));
  for (const [provider, { peakPerSecond }] of Object.entries(await fakes.summary()))
    judging.peak(provider, peakPerSecond);
  return judging.verdict();
}

async function loadDevices(admin: postgres.Sql): Promise<Device[]> {
  const rows = await admin<Omit<Device, "isHealthy" | "isBlocked">[]>`
    select id::float8 as id, user_id as "userId", provider, token, utc_offset as "utcOffset", deleted_at is not null as "isDeleted",
      was_first as "wasFirst"
    from chaos.devices`;
  return rows.map((row) => {
    const token = ledgerToken(row.provider, row.token);
    return {
      ...row,
      token,
      isHealthy: isHealthy(row.provider, token),
      isBlocked: isBlocked(row.provider, token),
    };
  });
}

async function accountOf(admin: postgres.Sql, id: string): Promise<Account> {
  const [sums] = await admin<{ planned: number; sent: number; failed: number; dropped: number }[]>`
    select coalesce(sum(planned), 0)::int as planned, coalesce(sum(sent), 0)::int as sent,
      coalesce(sum(failed), 0)::int as failed, coalesce(sum(dropped), 0)::int as dropped
    from (
      select planned, sent, failed, dropped from push.delivery_chunks where notification_id = ${id}
      union all
      select total.* from push.notifications n cross join lateral jsonb_to_recordset(n.totals) as total (
        planned int, sent int, failed int, dropped int)
      where n.id = ${id}
    ) as part`;
  const dead = await admin<{ id: number }[]>`
    select unnest(device_ids)::float8 as id from push.delivery_chunks
    where notification_id = ${id} and state = 'DEAD'`;
  const [row] = await admin<{ isCancelled: boolean }[]>`
    select state = 'CANCELLED' as "isCancelled" from push.notifications where id = ${id}`;
  if (sums === undefined || row === undefined) throw new Error(`notification ${id} is not there`);
  const devices = await admin<{ id: number }[]>`
    select device_id::float8 as id from chaos.planned where notification_id = ${id}`;
  return {
    ...sums,
    ...row,
    dead: new Set(dead.map((one) => one.id)),
    devices: devices.map((one) => one.id),
    historyWrong: await historyWrong(admin, id),
  };
}

/**
 * Users who have a planned device and no entry, or an entry and no planned device. Users without any device left may
 * have been forgotten, and their entries with them. An entry of `--kills` that is a row has the user's own value.
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
      union all
      select case e.variables ->> 'name' when u.user_id then u.user_id end
      from push.history_entries e join push.history_users u using (user_number) where e.notification_id = ${id}
    )
    select count(*)::int as wrong from planned full join entry using (user_id)
    where planned.user_id is null or (entry.user_id is null and planned.has_device)`;
  return found?.wrong ?? 0;
}
