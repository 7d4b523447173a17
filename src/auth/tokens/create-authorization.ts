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

/** The authenticated identity, and conditions that must still hold when the authorization is created. */
export interface AuthenticatedSubject {
  readonly identityId: string;
  /** The phone number that was proven; must still be the identity's. */
  readonly phone?: string;
  /** The hash of the password that was checked; must still be the identity's. */
  readonly passwordHash?: string;
  /** Must not have been redeemed yet; creating the authorization redeems it. */
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

/** When the tokens of a pair expire that is issued now, as ISO 8601. @param now milliseconds since the epoch */
export function expiriesOf(client: Client, now: number): { access: string; refresh: string } {
  const { accessTokenSeconds, refreshTokenSeconds } = client.tokenSettings;
  const after = (seconds: number) => new Date(now + seconds * 1000).toISOString();
  return { access: after(accessTokenSeconds), refresh: after(refreshTokenSeconds) };
}

/**
 * In one statement: checks that the conditions of the subject still hold and the client is enabled, redeems
 * the proof if there is one, creates the authorization and writes its event. A concurrent transaction that
 * deletes the identity, or changes its password, either sees the authorization and ends it, or commits first,
 * and then no authorization is created. Returns whether the authorization was created.
 */
type CreateAuthorization = (authorization: NewAuthorization) => Promise<boolean>;

/**
 * Authorizations that are requested at the same time share a statement and a commit. The shared statement skips
 * locked rows, and its failure is ignored, so that one request does not suffer from another. What it has not
 * created is tried again in a statement of its own; only the result of that one is final.
 */
export function createCreateAuthorization(db: Database): CreateAuthorization {
  const createBatched = batched({
    load: async (requested: readonly NewAuthorization[]) => {
      const created = await create(db, requested, insertBatch).catch((error: unknown) => {
        // The statement may have been committed, so a second try could not tell either.
        if (isDatabaseUnavailable(error)) throw error;
        return new Set<string>();
      });
      const isCreated = ({ refreshToken }: NewAuthorization) => created.has(refreshToken.authorizationId);
      return new Map(requested.filter(isCreated).map((authorization) => [authorization, true]));
    },
    maxKeys: 128,
  });
  return async (authorization) =>
    (await createBatched(authorization)) ?? (await create(db, [authorization], insertOne)).size === 1;
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

/** @param lockWait how to treat rows that another transaction has locked: `skip locked`, or wait if empty */
function insertStatement(lockWait: SQL) {
  return prepared(
    ["requested"],
    ({ requested }) => sql`
    with requested as (
      select * from json_to_recordset(${requested}::text::json) as row (
        ${id} uuid, ${identityId} text, ${phone} text, ${passwordHash} text, ${proofHash} bytea,
        proof_expires timestamptz, ${clientId} text, ${grantType} text, ${scopes} text[], ${createdAt} timestamptz,
        ${expiresAt} timestamptz, ${accessExpiresAt} timestamptz, ${familyHash} bytea, ${refreshHash} bytea)
    ), holder as (
      select ${identity.id}, ${phone}, ${passwordHash} from ${identities}
      where ${identity.id} in (select ${identityId} from requested)
      for share ${lockWait}
    ), registered as (
      select ${client.clientId} from ${clients}
      where ${client.clientId} in (select requested.${clientId} from requested) and ${client.disabledAt} is null
      for share ${lockWait}
    ), holding as (
      select requested.*, row_number() over (partition by requested.${proofHash} order by requested.${id}) as turn
      from requested join holder on holder.${identity.id} = requested.${identityId}
        join registered on registered.${client.clientId} = requested.${clientId}
      where (requested.${phone} is null or requested.${phone} = holder.${phone})
        and (requested.${passwordHash} is null or requested.${passwordHash} = holder.${passwordHash})
    ), redeemed as (
      insert into ${redeemedOtpProofs} (${proofHash}, ${proofExpiresAt})
      select ${proofHash}, proof_expires from holding where ${proofHash} is not null and turn = 1
      -- A fixed order prevents deadlocks between two statements.
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

const insertBatch = insertStatement(sql`skip locked`);
const insertOne = insertStatement(sql``);

/** @returns the ids of those that were created */
async function create(
  db: Database,
  requested: readonly NewAuthorization[],
  statement: typeof insertOne,
): Promise<Set<string>> {
  const created = await rows(
    db,
    granted,
    statement({ requested: JSON.stringify(requested.map(requestedRow)) }),
  );
  return new Set(created.map((row) => row.id));
}

/** The authorization as JSON, with the column names of the statement. */
function requestedRow({ client, grantType, subject, scopes, refreshToken, now }: NewAuthorization) {
  const { identityId, phone, passwordHash, otpProof } = subject;
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

/** Bytes in PostgreSQL's hex format. */
function bytea(bytes: Buffer): string {
  return `\\x${bytes.toString("hex")}`;
}
