/** What the database knows about a refresh token that is presented. */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Reads } from "../../platform/database/database.ts";
import { batched } from "../../platform/database/sql/batched-lookup.ts";
import {
  boolean,
  integer,
  listOf,
  names,
  nullable,
  oneOf,
  type ReadBy,
  text,
} from "../../platform/database/sql/readers.ts";
import {
  arrayItems,
  computed,
  fromPrimary,
  isStandby,
  jsonMember,
  prepared,
  rows,
  selection,
} from "../../platform/database/sql/statements.ts";
import { runningNow } from "../running-time.ts";
import { authorizations, clients, replacedTokens, rotationBatches } from "../schema.ts";
import { authorizationIdLength } from "./access-token.ts";
import { hasNotEnded } from "./end-authorizations.ts";
import { hashPart, matchesHash, type RefreshToken } from "./refresh-token.ts";

/** The authorization that a refresh token belongs to, and what the token is to it now. */
export interface PresentedToken {
  readonly authorizationId: string;
  readonly clientId: string;
  readonly identityId: string;
  readonly scopes: readonly string[];
  /** Of the authorization, by the database's clock. */
  readonly state: "ACTIVE" | "REVOKED" | "EXPIRED";
  /** Whether the token is the current one. Otherwise it has been replaced. */
  readonly isCurrent: boolean;
  /** If its successor is the current token and a retry may still have it: the pair, sealed. */
  readonly sealedPair: Buffer | undefined;
  /** Seconds until the current token expires, begun ones counted. */
  readonly secondsLeft: number;
}

/**
 * Finds what a refresh token is, as the database has it after the call; undefined for one that was never issued.
 * @throws unavailable if the server that was asked as the primary turns out to be a standby
 */
export type FindPresented = (token: RefreshToken) => Promise<PresentedToken | undefined>;

/** Look-ups of many requests share a query. */
export function createFindPresented(reads: Reads): FindPresented {
  const find = batched({ load: (keys: readonly string[]) => findAll(reads, keys) });
  return async (token) => {
    const found = await find(keyOf(token));
    if (!found || !matchesHash(token.family, Buffer.from(found.familyHash, "hex"))) return undefined;
    const { clientId, identityId, scopes, state, isCurrent, secondsLeft } = found;
    const sealedPair = found.sealedPair === null ? undefined : Buffer.from(found.sealedPair, "hex");
    const { authorizationId } = token;
    return { authorizationId, clientId, identityId, scopes, state, isCurrent, sealedPair, secondsLeft };
  };
}

/** The id of the authorization and, after a dot, the hash of the rotating part. */
function keyOf({ authorizationId, rotating }: RefreshToken): string {
  return `${authorizationId}.${hashPart(rotating).toString("hex")}`;
}

const authorization = names(authorizations, "a");
const client = names(clients, "owner");
const replaced = names(replacedTokens, "t");
const batch = names(rotationBatches, "b");

const presentedHash = sql`decode(substr(requested.value, ${authorizationIdLength + 2}::int), 'hex')`;

/** The grace window begins when the commit of the rotation was seen to succeed; it is measured in running time. */
const isWindowClosed = sql`exists (
  select from ${rotationBatches} b, ${clients} owner
  where ${batch.id} = ${replaced.batchId} and ${client.clientId} = ${authorization.clientId}
    and ${batch.seenAt} + ${jsonMember(client.tokenSettings, "refreshGraceSeconds")}::int * interval '1 second'
      <= ${runningNow})`;

/**
 * Whether the token is one that the authorization in the row `a` has replaced, and whose pair no retry may have any
 * more: to present it is reuse.
 */
export function isReuse({ rotating }: RefreshToken): SQL {
  const hash = sql`decode(${hashPart(rotating).toString("hex")}, 'hex')`;
  return sql`(${authorization.refreshHash} <> ${hash} and not exists (
    select from ${replacedTokens} t where ${replaced.authorizationId} = ${authorization.id}
      and ${replaced.replacedHash} = ${hash} and not ${isWindowClosed}))`;
}

const presented = selection({
  key: computed(text, sql`requested.value`),
  clientId: authorization.clientId,
  identityId: authorization.identityId,
  scopes: computed(listOf(text), sql`to_json(${authorization.scopes})`),
  familyHash: computed(text, sql`encode(${authorization.familyHash}, 'hex')`),
  state: computed(
    oneOf(["ACTIVE", "REVOKED", "EXPIRED"]),
    sql`case when not (${hasNotEnded}) then 'REVOKED'
      when ${authorization.expiresAt} <= clock_timestamp() then 'EXPIRED' else 'ACTIVE' end`,
  ),
  isCurrent: computed(boolean, sql`${authorization.refreshHash} = ${presentedHash}`),
  secondsLeft: computed(
    integer,
    sql`ceil(extract(epoch from ${authorization.expiresAt} - clock_timestamp()))::int`,
  ),
  sealedPair: computed(
    nullable(text),
    sql`case when ${replaced.replacedHash} = ${presentedHash} and not ${isWindowClosed}
      then encode(${replaced.sealedPair}, 'hex') end`,
  ),
});

const allPresented = selection({
  found: computed(listOf(presented), sql`coalesce(json_agg(presented), '[]')`),
  isStandby,
});

const selectPresented = prepared(
  ["keys"],
  ({ keys }) => sql`
    select ${allPresented} from (
      select found.* from ${arrayItems(keys)} as requested (value) cross join lateral (
        select ${presented} from ${authorizations} a
        left join ${replacedTokens} t on ${replaced.authorizationId} = ${authorization.id}
        where ${authorization.id} = left(requested.value, ${authorizationIdLength}::int)::uuid
        limit 1) as found
    ) as presented`,
);

async function findAll(
  reads: Reads,
  keys: readonly string[],
): Promise<Map<string, ReadBy<typeof presented>>> {
  const [row] = await rows(reads, allPresented, selectPresented({ keys: arrayLiteral(keys) }));
  return new Map(fromPrimary(row).found.map((one) => [one.key, one]));
}
