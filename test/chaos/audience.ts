/**
 * The devices of a run, and the records that the harness keeps beside the product's tables: triggers write down which
 * devices there were, and which of them each notification was planned for.
 */
import { createHash } from "node:crypto";
import type postgres from "postgres";
import { worldOffsets } from "../support/send-audience.ts";
import type { Fakes, Provider } from "./fakes.ts";

/** Why a device is never accepted, or that it always is in the end. */
const fates = ["healthy", "dead", "foreign", "barred"] as const;
type Fate = (typeof fates)[number];

/** The share of devices of each fate that is not healthy. */
const unhealthyShare = 0.01;
const providerShares = { fcm: 0.72, apns: 0.25 };

/** How tokens of a fate begin, with each provider. FCM's `barred-` needs a scenario; the fakes know the others. */
const beginnings: Readonly<Record<Provider, Readonly<Record<Fate, string>>>> = {
  fcm: { healthy: "device-", dead: "unregistered-", foreign: "mismatch-", barred: "barred-" },
  apns: { healthy: "0", dead: "dead0410", foreign: "dead0401", barred: "dead0411" },
  webpush: { healthy: "browser-", dead: "gone-", foreign: "forbidden-", barred: "notfound-" },
};

export interface NewDevice {
  readonly provider: Provider;
  readonly token: string;
  readonly utcOffset: number;
}

/** The token of the device with this number. */
export async function newToken(provider: Provider, fate: Fate, n: number, fakes: Fakes): Promise<string> {
  const beginning = beginnings[provider][fate];
  if (provider === "fcm") return `${beginning}${n}`;
  if (provider === "webpush") return JSON.stringify(await fakes.subscribe(`${beginning}${n}`));
  return beginning + createHash("sha256").update(String(n)).digest("hex").slice(beginning.length);
}

/** What the ledger knows a token by. */
export function ledgerToken(provider: Provider, token: string): string {
  if (provider !== "webpush") return token;
  const { endpoint }: { endpoint: string } = JSON.parse(token);
  return endpoint.slice(endpoint.lastIndexOf("/") + 1);
}

export function isHealthy(provider: Provider, ledgerName: string): boolean {
  const { healthy } = beginnings[provider];
  return ledgerName.startsWith(healthy);
}

/** Whether FCM says of each message that the project lacks a credential: its devices become dead letters at once. */
export function isBlocked(provider: Provider, ledgerName: string): boolean {
  return provider === "fcm" && ledgerName.startsWith(beginnings.fcm.barred);
}

/** Which provider and fate the device with this number has: the same in each run. */
export function drawOf(n: number): { provider: Provider; fate: Fate } {
  // Two fractions of golden sections spread evenly, whatever part of the numbers is looked at.
  const [one, two] = [(n * 0.6180339887498949) % 1, (n * 0.7548776662466927) % 1];
  const { fcm, apns } = providerShares;
  const provider = one < fcm ? "fcm" : one < fcm + apns ? "apns" : "webpush";
  const fate = fates[Math.floor(two / unhealthyShare) + 1] ?? "healthy";
  return { provider, fate };
}

/** Writes the triggers, and the devices. @param admin a superuser in the database of the push service */
export async function prepareAudience(
  admin: postgres.Sql,
  fakes: Fakes,
  { devices, users }: { readonly devices: number; readonly users: number },
): Promise<void> {
  await admin.unsafe(records);
  const step = 5_000;
  for (let from = 1; from <= devices; from += step) {
    const numbers = Array.from({ length: Math.min(step, devices - from + 1) }, (_, index) => from + index);
    const rows = await Promise.all(
      numbers.map(async (n) => {
        const { provider, fate } = drawOf(n);
        const token = await newToken(provider, fate, n, fakes);
        const identity = provider === "webpush" ? JSON.parse(token).endpoint : token;
        return { n, provider, token, hash: createHash("sha256").update(identity).digest("hex") };
      }),
    );
    const column = <K extends keyof (typeof rows)[number]>(name: K) => rows.map((row) => row[name]);
    await admin`
      insert into push.devices (user_id, token, utc_offset, expires_at, provider, token_hash, registered_at, renewed_at)
      select 'user-' || (n % ${users}), token, (${worldOffsets}::smallint[])[n % ${worldOffsets.length} + 1],
        now() + interval '30 days', provider, decode(hash, 'hex'), now() - interval '1 day', now() - interval '1 day'
      from unnest(${column("n")}::int[], ${column("provider")}::text[], ${column("token")}::text[],
        ${column("hash")}::text[]) as made (n, provider, token, hash)`;
  }
  await admin`update chaos.devices set was_first = true`;
  await admin`analyze push.devices`;
}

const records = `
  create schema chaos;
  create table chaos.devices (
    id bigint primary key, user_id text not null, provider text not null, token text not null,
    utc_offset smallint not null, deleted_at timestamptz, was_first boolean not null default false);
  create table chaos.planned (notification_id uuid, device_id bigint, primary key (notification_id, device_id));
  create function chaos.note_devices() returns trigger language plpgsql security definer as $$ begin
    insert into chaos.devices (id, user_id, provider, token, utc_offset) select id, user_id, provider, token, utc_offset from made;
    return null;
  end $$;
  create function chaos.note_deletions() returns trigger language plpgsql security definer as $$ begin
    update chaos.devices d set deleted_at = clock_timestamp() from gone where d.id = gone.id;
    return null;
  end $$;
  create function chaos.note_chunks() returns trigger language plpgsql security definer as $$ begin
    insert into chaos.planned select distinct notification_id, unnest(device_ids) from made on conflict do nothing;
    return null;
  end $$;
  create trigger chaos_devices after insert on push.devices referencing new table as made
    for each statement execute function chaos.note_devices();
  create trigger chaos_deletions after delete on push.devices referencing old table as gone
    for each statement execute function chaos.note_deletions();
  create trigger chaos_chunks after insert on push.delivery_chunks referencing new table as made
    for each statement execute function chaos.note_chunks();`;
