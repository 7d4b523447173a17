/** What providers respond about their users: who has an accepted device, and which devices they report dead. */
import { sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { prepared } from "../../platform/database/sql/statements.ts";
import type { ProviderName } from "../provider-settings.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import { deadReports, devices, providerResponses } from "../schema.ts";
import { insertProviderState } from "./provider-pauses.ts";
import { type Removals, type StopLimits, stopIfTooMany } from "./removal-stop.ts";
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
