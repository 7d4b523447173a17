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
  objectOf,
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
import type { AuthorizationFacts } from "./current-tokens.ts";
import { state } from "./end-authorizations.ts";
import { hashPart, matchesHash, type RefreshToken } from "./refresh-token.ts";

/** The authorization that a refresh token belongs to, and what the token is to it now. */
export interface PresentedToken extends AuthorizationFacts {
  readonly authorizationId: string;
  /** Of the authorization, by the database's clock. */
  readonly state: "ACTIVE" | "REVOKED" | "EXPIRED";
  /** Whether the token is the current one. Otherwise it has been replaced. */
  readonly isCurrent: boolean;
  /** If its successor is the current token and a retry may still have it: the pair, sealed. */
  readonly sealedPair: Buffer | undefined;
  /** The same of a bound one, however late: the successor, sealed. */
  readonly sealedSuccessor: Buffer | undefined;
  /** Whether a retry with it is later than the grace window. */
  readonly isLate: boolean;
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
    return {
      ...found,
      asClient: found.asClient ?? undefined,
      authorizationId: token.authorizationId,
      keyThumbprint: bytesOf(found.keyThumbprint)?.toString("base64url"),
      sealedPair: bytesOf(found.sealedPair),
      sealedSuccessor: bytesOf(found.sealedSuccessor),
    };
  };
}

function bytesOf(hex: string | null): Buffer | undefined {
  return hex === null ? undefined : Buffer.from(hex, "hex");
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

/** Whether the grace window that began then has closed, in running time, for the client in the row `owner`. */
const hasClosed = (begin: SQL) => sql`
  ${begin} + ${jsonMember(client.tokenSettings, "refreshGraceSeconds")}::int * interval '1 second' <= ${runningNow}`;

/** The grace window begins when the commit of the rotation was seen to succeed; it is measured in running time. */
const isWindowClosed = sql`exists (
  select from ${rotationBatches} b, ${clients} owner
  where ${batch.id} = ${replaced.batchId} and ${client.clientId} = ${authorization.clientId}
    and ${hasClosed(sql`${batch.seenAt}`)})`;

/**
 * Whether the last rotation of the authorization in the row `a`, whose tokens are bound to a key, was longer ago than
 * the grace window. Its window begins with its statement: that it closes decides nothing alone.
 */
const isLate = sql`case when ${authorization.replacedAt} is null then false else exists (
  select from ${clients} owner where ${client.clientId} = ${authorization.clientId}
    and ${hasClosed(sql`${authorization.replacedAt}`)}) end`;

const hashOf = ({ rotating }: RefreshToken) => sql`decode(${hashPart(rotating).toString("hex")}, 'hex')`;

/** Whether the token is the one that the authorization in the row `a`, whose tokens are bound, has replaced last, late. */
export function isLateRepeat(token: RefreshToken): SQL {
  return sql`(${authorization.replacedHash} = ${hashOf(token)} and ${isLate})`;
}

/**
 * Whether the token is one that the authorization in the row `a` has replaced, and whose pair no retry may have any
 * more: to present it is reuse.
 */
export function isReuse(token: RefreshToken): SQL {
  const hash = hashOf(token);
  return sql`(${authorization.refreshHash} <> ${hash} and ${authorization.replacedHash} is distinct from ${hash} and not exists (
    select from ${replacedTokens} t where ${replaced.authorizationId} = ${authorization.id}
      and ${replaced.replacedHash} = ${hash} and not ${isWindowClosed}))`;
}

const presented = selection({
  key: computed(text, sql`requested.value`),
  clientId: authorization.clientId,
  identityId: authorization.identityId,
  scopes: computed(listOf(text), sql`to_json(${authorization.scopes})`),
  asClient: computed(
    nullable(objectOf({ organizationId: nullable(text) })),
    sql`case when ${authorization.grantType} = 'client_credentials'
      then json_build_object('organizationId', ${authorization.organizationId}) end`,
  ),
  keyThumbprint: computed(nullable(text), sql`encode(${authorization.keyThumbprint}, 'hex')`),
  familyHash: computed(text, sql`encode(${authorization.familyHash}, 'hex')`),
  state,
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
  sealedSuccessor: computed(
    nullable(text),
    sql`case when ${authorization.replacedHash} = ${presentedHash}
      then encode(${authorization.sealedSuccessor}, 'hex') end`,
  ),
  isLate: computed(boolean, isLate),
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
