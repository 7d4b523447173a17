import { type SQL, sql } from "drizzle-orm";
import { isDatabaseUnavailable } from "../../platform/base/database-errors.ts";
import { batched } from "../../platform/database/batched-lookup.ts";
import type { Database } from "../../platform/database/database.ts";
import { names } from "../../platform/database/names.ts";
import { prepared, rows, selection } from "../../platform/database/statements.ts";
import type { Client } from "../clients/client.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import { authorizations, clients, identities, redeemedOtpProofs } from "../schema.ts";
import { hashPart, type RefreshToken } from "./refresh-token.ts";

/** Whom a grant has established, and what must still hold when the authorization is created. */
export interface AuthenticatedSubject {
  readonly identityId: string;
  /** The phone number that was proven must still be the identity's. */
  readonly phone?: string;
  /** The password that was checked must still be the identity's. */
  readonly passwordHash?: string;
  /** The proof must not have been redeemed; it is by this. */
  readonly otpProof?: { readonly hash: Buffer; readonly expiresAt: Date };
}

/** A new authorization. */
interface NewAuthorization {
  readonly client: Client;
  readonly grantType: string;
  readonly subject: AuthenticatedSubject;
  readonly scopes: readonly string[];
  readonly refreshToken: RefreshToken;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** When the tokens of a pair that is issued now expire. */
export function expiriesOf(client: Client, now: number): { access: string; refresh: string } {
  const { accessTokenSeconds, refreshTokenSeconds } = client.tokenSettings;
  const after = (seconds: number) => new Date(now + seconds * 1000).toISOString();
  return { access: after(accessTokenSeconds), refresh: after(refreshTokenSeconds) };
}

/**
 * Must, in one statement, check that the identity and the client still are what the grant saw, redeem the
 * proof if there is one, create the authorization and write its event. An identity that is deleted, or whose
 * password is changed, at the same moment either sees the authorization and ends it, or makes this find
 * nothing. Answers whether there is an authorization now.
 */
type CreateAuthorization = (authorization: NewAuthorization) => Promise<boolean>;

/**
 * Authorizations that are asked for at the same time share a statement, and a commit. That one waits for no
 * lock and its failure counts for nothing, so that nobody depends on what only concerns another: what it has
 * not created is tried again by itself, and only that tells that there is none.
 */
export function createCreateAuthorization(db: Database): CreateAuthorization {
  const together = batched({
    load: async (asked: readonly NewAuthorization[]) => {
      const created = await create(db, asked, insertTogether).catch((error: unknown) => {
        // Whether it was committed is not known, so trying again could not tell either.
        if (isDatabaseUnavailable(error)) throw error;
        return new Set<string>();
      });
      const isCreated = ({ refreshToken }: NewAuthorization) => created.has(refreshToken.authorizationId);
      return new Map(asked.filter(isCreated).map((authorization) => [authorization, true]));
    },
    maxKeys: 128,
  });
  return async (authorization) =>
    (await together(authorization)) ?? (await create(db, [authorization], insertAlone)).size === 1;
}

const { id, clientId, identityId, grantType, scopes, createdAt, expiresAt, accessExpiresAt } =
  names(authorizations);
const { familyHash, refreshHash, superseded } = names(authorizations);
const { phone, passwordHash, ...identity } = names(identities);
const client = names(clients);
const { proofHash, expiresAt: proofExpiresAt } = names(redeemedOtpProofs);

const granted = selection({ id });

const recordGranted = recordEvent(
  AuthEvents.authorizationGranted,
  { identityId, authorizationId: id, clientId, grantType },
  createdAt,
  sql`from granted`,
);

/** @param waiting what becomes of a lock that somebody else has */
function insertStatement(waiting: SQL) {
  return prepared(
    ["asked"],
    ({ asked }) => sql`
    with asked as (
      select * from json_to_recordset(${asked}::text::json) as row (
        ${id} uuid, ${identityId} text, ${phone} text, ${passwordHash} text, ${proofHash} bytea,
        proof_expires timestamptz, ${clientId} text, ${grantType} text, ${scopes} text[], ${createdAt} timestamptz,
        ${expiresAt} timestamptz, ${accessExpiresAt} timestamptz, ${familyHash} bytea, ${refreshHash} bytea)
    ), holder as (
      select ${identity.id}, ${phone}, ${passwordHash} from ${identities}
      where ${identity.id} in (select ${identityId} from asked)
      for share ${waiting}
    ), registered as (
      select ${client.clientId} from ${clients}
      where ${client.clientId} in (select asked.${clientId} from asked) and ${client.disabledAt} is null
      for share ${waiting}
    ), holding as (
      select asked.*, row_number() over (partition by asked.${proofHash} order by asked.${id}) as turn
      from asked join holder on holder.${identity.id} = asked.${identityId}
        join registered on registered.${client.clientId} = asked.${clientId}
      where (asked.${phone} is null or asked.${phone} = holder.${phone})
        and (asked.${passwordHash} is null or asked.${passwordHash} = holder.${passwordHash})
    ), redeemed as (
      insert into ${redeemedOtpProofs} (${proofHash}, ${proofExpiresAt})
      select ${proofHash}, proof_expires from holding where ${proofHash} is not null and turn = 1
      -- In one order, so that no two statements wait for each other.
      order by ${proofHash}
      on conflict do nothing returning ${proofHash}
    ), granted as (
      insert into ${authorizations} (${id}, ${clientId}, ${identityId}, ${grantType}, ${scopes}, ${createdAt},
        ${expiresAt}, ${accessExpiresAt}, ${familyHash}, ${refreshHash}, ${superseded})
      select ${id}, ${clientId}, ${identityId}, ${grantType}, ${scopes}, ${createdAt},
        ${expiresAt}, ${accessExpiresAt}, ${familyHash}, ${refreshHash}, '[]'::jsonb
      from holding
      where ${proofHash} is null or (turn = 1 and ${proofHash} in (select ${proofHash} from redeemed))
      returning ${id}, ${clientId}, ${identityId}, ${grantType}, ${createdAt}
    ), recorded as (${recordGranted})
    select ${granted} from granted`,
  );
}

const insertTogether = insertStatement(sql`skip locked`);
const insertAlone = insertStatement(sql``);

/** @returns the ids of those that were created */
async function create(
  db: Database,
  asked: readonly NewAuthorization[],
  statement: typeof insertAlone,
): Promise<Set<string>> {
  const created = await rows(db, granted, statement({ asked: JSON.stringify(asked.map(askedRow)) }));
  return new Set(created.map((row) => row.id));
}

/** What is asked for, by the names that the statement gives its parts. */
function askedRow({ client, grantType, subject: established, scopes, refreshToken, now }: NewAuthorization) {
  const { identityId, phone, passwordHash, otpProof } = established;
  const expiries = expiriesOf(client, now);
  return {
    [authorizations.id.name]: refreshToken.authorizationId,
    [authorizations.identityId.name]: identityId,
    [identities.phone.name]: phone,
    [identities.passwordHash.name]: passwordHash,
    [redeemedOtpProofs.proofHash.name]: otpProof && bytea(otpProof.hash),
    proof_expires: otpProof?.expiresAt,
    [authorizations.clientId.name]: client.clientId,
    [authorizations.grantType.name]: grantType,
    [authorizations.scopes.name]: scopes,
    [authorizations.createdAt.name]: new Date(now),
    [authorizations.expiresAt.name]: expiries.refresh,
    [authorizations.accessExpiresAt.name]: expiries.access,
    [authorizations.familyHash.name]: bytea(hashPart(refreshToken.family)),
    [authorizations.refreshHash.name]: bytea(hashPart(refreshToken.rotating)),
  };
}

/** Bytes as PostgreSQL reads them from text. */
function bytea(bytes: Buffer): string {
  return `\\x${bytes.toString("hex")}`;
}
