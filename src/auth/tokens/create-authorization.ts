import { type SQL, sql } from "drizzle-orm";
import { isDatabaseUnavailable } from "../../platform/base/database-errors.ts";
import type { Database } from "../../platform/database/database.ts";
import { batched } from "../../platform/database/sql/batched-lookup.ts";
import { hexOfBytea } from "../../platform/database/sql/columns.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { prepared, rows, selection } from "../../platform/database/sql/statements.ts";
import type { AsClient } from "../clients/as-client.ts";
import type { Client } from "../clients/client-repository.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import {
  authorizations,
  clients,
  identities,
  identityEndings,
  organizationEndings,
  redeemedOtpProofs,
} from "../schema.ts";
import type { Description } from "./description.ts";
import { hashPart, type RefreshToken } from "./refresh-token.ts";

/** The authenticated identity, and conditions that must still hold when the authorization is created. */
export interface AuthenticatedSubject {
  readonly identityId: string;
  /** Whom the client acts for, where `identityId` is its own id, which no identity may have; undefined: for the user. */
  readonly asClient?: AsClient;
  /** The phone number that was proven; must still be the identity's. */
  readonly phone?: string;
  /** The latest ending of the identity when it was found; there must be no later one. */
  readonly identityGeneration?: number;
  /** The hash of the password that was checked; must still be the identity's. */
  readonly passwordHash?: string;
  /** Must not have been redeemed yet; creating the authorization redeems it. */
  readonly otpProof?: { readonly hash: Buffer; readonly expiresAt: Date };
}

export interface NewAuthorization {
  readonly client: Client;
  readonly grantType: string;
  readonly subject: AuthenticatedSubject;
  readonly scopes: readonly string[];
  readonly description: Description;
  readonly refreshToken: RefreshToken;
  /** Of the key that its refresh tokens are bound to (RFC 7638, base64url); undefined: to none. */
  readonly keyThumbprint?: string | undefined;
}

/**
 * In one statement: checks that the conditions of the subject still hold and the client is enabled, redeems the proof,
 * creates the authorization and writes its event; one with a key at most once for its id. A concurrent deletion, change of password, disabling or ending of the
 * organization ends it, whichever commits first.
 * @returns whether the authorization was created
 */
type CreateAuthorization = (authorization: NewAuthorization) => Promise<boolean>;

/**
 * Authorizations that are requested at the same time share a statement and a commit; if it fails, each is tried again
 * alone. One with a proof is always alone, as it waits for others that redeem the same proof; one with a key, for others
 * of its code, which have the same id.
 */
export function createCreateAuthorization(db: Database): CreateAuthorization {
  const createBatched = batched({
    load: async (requested: readonly NewAuthorization[]) => {
      const created = await create(db, insertNew, requested).catch((error: unknown) => {
        // The statement may have been committed, so a second try could not tell either.
        if (isDatabaseUnavailable(error) || requested.length === 1) throw error;
        return undefined;
      });
      const outcome = ({ refreshToken }: NewAuthorization) =>
        created?.has(refreshToken.authorizationId) ?? "FAILED";
      return new Map(requested.map((one) => [one, outcome(one)]));
    },
    maxKeys: 128,
  });
  return async (authorization) => {
    const isOfCode = authorization.keyThumbprint !== undefined;
    const isShared = !isOfCode && authorization.subject.otpProof === undefined;
    const created = isShared ? await createBatched(authorization) : undefined;
    if (isShared && created !== "FAILED") return created === true;
    return (await create(db, isOfCode ? insertOnce : insertNew, [authorization])).size === 1;
  };
}

const { id, clientId, identityId, grantType, scopes, createdAt, familyHash, refreshHash, ...own } =
  names(authorizations);
const { phone, passwordHash, ...identity } = names(identities);
const client = names(clients);
const ending = names(identityEndings, "e");
const organization = names(organizationEndings, "o");
const { proofHash, expiresAt: proofExpiresAt } = names(redeemedOtpProofs);

const granted = selection({ id });

const recordGranted = recordEvent(
  AuthEvents.authorizationGranted,
  { identityId, authorizationId: id, clientId, grantType },
  { at: createdAt, from: sql`from granted` },
);

/** An authorization for a user needs his identity; a client that acts for no user (RFC 6749 section 4.4), that there is none. */
const inserting = (onConflict: SQL) =>
  prepared(
    ["requested"],
    ({ requested }) => sql`
    with requested as (
      select * from json_to_recordset(${requested}::text::json) as row (
        ${id} uuid, ${identityId} text, ${phone} text, ${passwordHash} text, required_generation bigint,
        ${proofHash} bytea, proof_expires timestamptz, ${own.keyThumbprint} bytea, ${clientId} text, ${grantType} text, ${scopes} text[],
        refresh_seconds int, access_seconds int, ${familyHash} bytea, ${refreshHash} bytea,
        ${own.organizationId} text, ${own.deviceName} text, ${own.metadata} jsonb)
    ), eligible as (
      select requested.*, registered.${client.generation} as ${own.clientGeneration},
        coalesce((select max(${ending.generation}) from ${identityEndings} e
          where ${ending.identityId} = requested.${identityId}), 0) as ${own.identityGeneration},
        case when requested.${own.organizationId} is not null then
          coalesce((select ${organization.generation} from ${organizationEndings} o
            where ${organization.organizationId} = requested.${own.organizationId}), 0) end as ${own.organizationGeneration},
        clock_timestamp() as moment
      from requested left join ${identities} holder on holder.${identity.id} = requested.${identityId}
        join ${clients} registered on registered.${client.clientId} = requested.${clientId}
          and registered.${client.disabledAt} is null
      where (holder.${identity.id} is null) = (requested.${grantType} = 'client_credentials')
        and (requested.${phone} is null or requested.${phone} = holder.${phone})
        and (requested.${passwordHash} is null or requested.${passwordHash} = holder.${passwordHash})
    ), dated as (
      select eligible.*, moment + refresh_seconds * interval '1 second' as refresh_end,
        moment + access_seconds * interval '1 second' as access_end
      from eligible where required_generation is null or required_generation >= ${own.identityGeneration}
    ), redeemed as (
      insert into ${redeemedOtpProofs} (${proofHash}, ${proofExpiresAt})
      select ${proofHash}, proof_expires from eligible where ${proofHash} is not null
      on conflict do nothing returning ${proofHash}
    ), granted as (
      insert into ${authorizations} (${id}, ${clientId}, ${identityId}, ${grantType}, ${scopes}, ${createdAt},
        ${own.clientGeneration}, ${own.identityGeneration}, ${own.expiresAt}, ${own.refreshedAt},
        ${own.expiryDay}, ${familyHash}, ${refreshHash}, ${own.keyThumbprint}, ${own.deviceName}, ${own.metadata},
        ${own.organizationId}, ${own.organizationGeneration})
      select ${id}, ${clientId}, ${identityId}, ${grantType}, ${scopes}, moment, ${own.clientGeneration},
        ${own.identityGeneration}, refresh_end, moment, (greatest(refresh_end, access_end) at time zone 'UTC')::date,
        ${familyHash}, ${refreshHash}, ${own.keyThumbprint}, ${own.deviceName}, ${own.metadata},
        ${own.organizationId}, ${own.organizationGeneration}
      from dated
      where ${proofHash} is null or ${proofHash} in (select ${proofHash} from redeemed)
      ${onConflict} returning ${id}, ${clientId}, ${identityId}, ${grantType}, ${createdAt}
    ), recorded as (${recordGranted})
    select ${granted} from granted`,
  );
const insertNew = inserting(sql``);
const insertOnce = inserting(sql`on conflict (${id}) do nothing`);

/** @returns the ids of those that were created */
async function create(
  db: Database,
  insert: typeof insertNew,
  requested: readonly NewAuthorization[],
): Promise<Set<string>> {
  const statement = insert({ requested: JSON.stringify(requested.map(requestedRow)) });
  return new Set((await rows(db, granted, statement)).map((row) => row.id));
}

/** The authorization as JSON, with the column names of the statement. */
function requestedRow(requested: NewAuthorization) {
  const { client, grantType, subject, scopes, description, refreshToken, keyThumbprint } = requested;
  const { identityId, asClient, phone, passwordHash, otpProof, identityGeneration } = subject;
  return {
    [authorizations.id.name]: refreshToken.authorizationId,
    [authorizations.identityId.name]: identityId,
    [authorizations.organizationId.name]: asClient?.organizationId,
    [identities.phone.name]: phone,
    [identities.passwordHash.name]: passwordHash,
    required_generation: identityGeneration,
    [authorizations.keyThumbprint.name]: keyThumbprint && hexOfBytea(Buffer.from(keyThumbprint, "base64url")),
    [redeemedOtpProofs.proofHash.name]: otpProof && hexOfBytea(otpProof.hash),
    proof_expires: otpProof?.expiresAt,
    [authorizations.clientId.name]: client.clientId,
    [authorizations.grantType.name]: grantType,
    [authorizations.scopes.name]: scopes,
    refresh_seconds: client.tokenSettings.refreshTokenSeconds,
    access_seconds: client.tokenSettings.accessTokenSeconds,
    [authorizations.familyHash.name]: hexOfBytea(hashPart(refreshToken.family)),
    [authorizations.refreshHash.name]: hexOfBytea(hashPart(refreshToken.rotating)),
    [authorizations.deviceName.name]: description.deviceName,
    [authorizations.metadata.name]: description.metadata,
  };
}
