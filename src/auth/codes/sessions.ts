/** The sessions of a challenge, as rows. Every decision about one is one statement, by the database's clock. */
import { createHash, createHmac, randomUUID } from "node:crypto";
import { type SQL, sql } from "drizzle-orm";
import { randomBytes } from "../../platform/crypto/random.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { boolean, integer, names } from "../../platform/database/sql/readers.ts";
import { computed, onlyRow, rows, selection } from "../../platform/database/sql/statements.ts";
import { challengeSessions, sentCodes } from "../codes-schema.ts";
import type { CodesSettings } from "../codes-settings.ts";
import { clients } from "../schema.ts";
import { prefixOf } from "./numbers.ts";

/** Seconds that a code is valid. */
export const codeSeconds = 300;
const sessionSeconds = 600;
/** Wrong codes that end a session. */
const maxWrongTries = 5;

/** What is fixed as a challenge begins. */
export interface Challenge {
  /** Canonical E.164. */
  readonly phone: string;
  readonly clientId: string;
  /** As the client has asked for them. */
  readonly scopes: readonly string[] | undefined;
  /** PKCE, S256 (RFC 7636). */
  readonly codeChallenge: string;
  /** SHA-256 thumbprint of the client's key (RFC 7638), as base64url. */
  readonly keyThumbprint: string;
  /** Who has the phone, and the latest ending of that identity (0: none); undefined: nobody. */
  readonly identity: { readonly id: string; readonly generation: number } | undefined;
  /** Whether the phone gets its codes: somebody has it, or the client may sign up who has it. */
  readonly isSent: boolean;
}

/** Whose session it is. With another client or key it is an invalid one. */
export interface PresentedSession {
  readonly authSession: string;
  /** Undefined: not named. */
  readonly clientId: string | undefined;
  readonly keyThumbprint: string;
}

/** A session as its client sees it. */
export interface SessionState {
  readonly authSession: string;
  readonly expiresInSeconds: number;
  /** When another code may be asked for; once no more are left, when the session has expired. */
  readonly resendAfterSeconds: number;
}

/** A session that is valid, before a further code is made. */
interface FoundSession extends Pick<SessionState, "resendAfterSeconds"> {
  readonly phone: string;
  readonly clientId: string;
  readonly isSent: boolean;
}

interface CheckedCode {
  readonly isRight: boolean;
  readonly session: SessionState;
}

export interface Sessions {
  /** @param code right for the session, if its phone gets it */
  insert(challenge: Challenge, code: string): Promise<SessionState>;
  find(presented: PresentedSession): Promise<FoundSession | undefined>;
  /** Replaces the code. @returns undefined if it is too early, or the session is not valid any more */
  renew(presented: PresentedSession, found: FoundSession, code: string): Promise<SessionState | undefined>;
  /** Compares a code, and counts it if it is wrong. @returns undefined if the session is not valid, or not any more */
  check(presented: PresentedSession, code: string): Promise<CheckedCode | undefined>;
}

const session = names(challengeSessions);
const sent = names(sentCodes);
const owner = names(clients, "owner");

/** Whole seconds until a moment, by which it has come. A stored moment may be rounded up by half a millisecond. */
const secondsUntil = (moment: SQL) =>
  computed(integer, sql`greatest(ceil(extract(epoch from ${moment} - now()) - 0.001), 0)::int`);

const state = {
  expiresInSeconds: secondsUntil(session.expiresAt),
  resendAfterSeconds: secondsUntil(session.resendAt),
};
const begun = selection(state);
const { resendAfterSeconds } = state;
const found = selection({
  resendAfterSeconds,
  phone: session.phone,
  clientId: session.clientId,
  isSent: session.isSent,
});
const checked = selection({
  ...state,
  isRight: computed(boolean, sql`is_right`),
  isLast: computed(boolean, sql`${session.wrongTries} >= ${sql.raw(String(maxWrongTries))}`),
});

/** The name of a session in its row. */
export function sessionHashOf(authSession: string): Buffer {
  return createHash("sha256").update(authSession).digest();
}

/** A code as it is stored: who reads the database has not the key, and so cannot try out a million codes. */
function macOf(authSession: string, code: string): Buffer {
  return createHmac("sha256", authSession).update(code).digest();
}

/** As {@link macOf}; that of no code where none is sent. */
const storedMac = (isSent: boolean, authSession: string, code: string) =>
  isSent ? macOf(authSession, code) : randomBytes(32);

const seconds = (count: number): SQL => sql`${count}::int * interval '1 second'`;

/** Whether the session is valid, and its client still is one without a secret that is enabled. */
const isValid = ({ authSession, clientId, keyThumbprint }: PresentedSession): SQL => sql`
  ${session.sessionHash} = ${sessionHashOf(authSession)} and ${session.keyThumbprint} = ${keyThumbprint}
    and ${session.clientId} = coalesce(${clientId ?? null}::text, ${session.clientId})
    and ${session.clientId} in (select ${owner.clientId} from ${clients} owner
      where ${owner.disabledAt} is null and 'none' = any(${owner.authenticationMethods}))
    and ${session.expiresAt} > now()
    and ${session.exchangedAt} is null and ${session.wrongTries} < ${maxWrongTries}::int`;

export function createSessions(
  db: Database,
  { limits, resendSeconds }: Pick<CodesSettings, "limits" | "resendSeconds">,
): Sessions {
  /** When a further code may be asked for, after so many; once there are no more, the session has expired by then. */
  const resendAt = (codesMade: SQL, expiresAt: SQL): SQL => sql`
    case when ${codesMade} < ${limits.session}::int then least(now() + ${seconds(resendSeconds)}, ${expiresAt})
      else ${expiresAt} end`;

  return {
    async insert({ phone, clientId, scopes, codeChallenge, keyThumbprint, identity, isSent }, code) {
      const authSession = randomBytes(32).toString("base64url");
      const id = randomUUID();
      const expiresAt = sql`now() + ${seconds(sessionSeconds)}`;
      const statement = sql`
        with made as (${insertSent(id, phone)})
        insert into ${challengeSessions} (
          ${session.sessionHash}, ${session.phone}, ${session.clientId}, ${session.scopes},
          ${session.codeChallenge}, ${session.keyThumbprint}, ${session.identityId}, ${session.identityGeneration},
          ${session.isSent}, ${session.otpMac}, ${session.otpExpiresAt}, ${session.sentCodeId},
          ${session.resendAt}, ${session.codesMade}, ${session.createdAt}, ${session.expiresAt})
        values (
          ${sessionHashOf(authSession)}, ${phone}, ${clientId}, ${scopes ? arrayLiteral(scopes) : null}::text[],
          ${codeChallenge}, ${keyThumbprint}, ${identity?.id ?? null}, ${identity?.generation ?? 0}::bigint,
          ${isSent}, ${storedMac(isSent, authSession, code)}, now() + ${seconds(codeSeconds)}, ${id}::uuid,
          ${resendAt(sql`1`, expiresAt)}, 1, now(), ${expiresAt})
        returning ${begun}`;
      return { authSession, ...(await onlyRow(db, begun, statement)) };
    },

    async find(presented) {
      const statement = sql`select ${found} from ${challengeSessions} where ${isValid(presented)}`;
      return (await rows(db, found, statement))[0];
    },

    async renew(presented, { phone, isSent }, code) {
      const { authSession } = presented;
      const id = randomUUID();
      const codesMade = sql`${session.codesMade} + 1`;
      const renewed = sql`
        update ${challengeSessions}
        set ${session.otpMac} = ${storedMac(isSent, authSession, code)},
          ${session.otpExpiresAt} = now() + ${seconds(codeSeconds)}, ${session.sentCodeId} = ${id}::uuid,
          ${session.codesMade} = ${codesMade}, ${session.resendAt} = ${resendAt(codesMade, sql`${session.expiresAt}`)}
        where ${isValid(presented)} and ${session.resendAt} <= now()
        returning ${begun}`;
      const statement = sql`
        with renewed as (${renewed}), made as (${insertSent(id, phone)} from renewed) select * from renewed`;
      const [row] = await rows(db, begun, statement);
      return row && { authSession, ...row };
    },

    async check(presented, code) {
      const { authSession } = presented;
      const isRight = sql`(${session.otpMac} = ${macOf(authSession, code)} and ${session.otpExpiresAt} > now())`;
      const tried = sql`
        update ${challengeSessions}
        set ${session.wrongTries} = ${session.wrongTries} + case when ${isRight} then 0 else 1 end
        where ${isValid(presented)}
        returning *, ${isRight} as is_right`;
      const used = sql`
        update ${sentCodes} set ${sent.isUsed} = true from tried
        where ${sent.id} = tried.${session.sentCodeId} and is_right and not ${sent.isUsed}`;
      const statement = sql`
        with tried as (${tried}), used as (${used}) select ${checked} from tried`;
      const [row] = await rows(db, checked, statement);
      if (!row || (row.isLast && !row.isRight)) return undefined;
      const { isRight: right, isLast: _, ...rest } = row;
      return { isRight: right, session: { authSession, ...rest } };
    },
  };
}

/** The row by which a breaker sees the code. Also of a code that is not sent: it would tell that nobody has the phone. */
function insertSent(id: string, phone: string): SQL {
  return sql`
    insert into ${sentCodes} (${sent.id}, ${sent.prefix}, ${sent.sentAt})
    select ${id}::uuid, ${prefixOf(phone)}::text, now()`;
}
