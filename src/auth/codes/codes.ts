/**
 * One-time codes by SMS, within the process: the sessions of a challenge, and every limit on what is sent and tried.
 * Whoever calls learns nothing here that depends on whether anybody has the phone.
 */
import { randomInt, randomUUID } from "node:crypto";
import type { CodesSettings } from "../codes-settings.ts";
import type { BreakerRefusal } from "./breaker.ts";
import type { CodeObserver } from "./code-observer.ts";
import { type CodeRefusal, type CodeRequest, limited } from "./code-request.ts";
import { mayReceiveCodes, prefixOf } from "./numbers.ts";
import type { OutgoingMessages } from "./outgoing-messages.ts";
import type { SendLimits } from "./send-limits.ts";
import {
  type Challenge,
  type PresentedSession,
  type SessionState,
  type Sessions,
  sessionHashOf,
} from "./sessions.ts";

/** Unknown, expired, another client's or key's, a disabled client's, tries used up, or the authorization code exchanged. */
const invalid = { kind: "invalid" } as const;

type CheckResult =
  /** The same right code may be presented again until the exchange. The hash is the key of the session's row. */
  | { readonly kind: "right"; readonly sessionHash: Buffer }
  | { readonly kind: "wrong"; readonly session: SessionState }
  | typeof invalid;

type ResendResult = { readonly kind: "sent"; readonly session: SessionState } | CodeRefusal | typeof invalid;

export interface Codes {
  /**
   * Counts a code for every limit, or refuses it. To be called before the phone is looked up.
   * @returns undefined if the code may be sent
   * @throws overloaded if too many messages wait to be sent
   */
  mayBegin(request: CodeRequest): Promise<CodeRefusal | undefined>;
  /** Writes the session of a challenge that may begin. Its code is sent after the response. */
  begin(challenge: Challenge): Promise<SessionState>;
  /** Sends a new code, after the response, which replaces the one before; it counts for every limit. */
  resend(session: PresentedSession, address: string | undefined): Promise<ResendResult>;
  /** Whether the code is right. A wrong one counts for its session and nothing else; the fifth makes it invalid. */
  check(session: PresentedSession, otp: string): Promise<CheckResult>;
  /** Resolves when no message is being sent any more. */
  stop(): Promise<void>;
}

interface Dependencies {
  readonly settings: Pick<CodesSettings, "regions" | "text">;
  readonly sessions: Sessions;
  readonly limits: SendLimits;
  readonly breakerRefusal: BreakerRefusal;
  readonly messages: OutgoingMessages;
  readonly observer: Pick<CodeObserver, "checked" | "refused">;
}

export function createCodes(dependencies: Dependencies): Codes {
  const { settings, sessions, limits, breakerRefusal, messages, observer } = dependencies;

  async function mayBegin(request: CodeRequest): Promise<CodeRefusal | undefined> {
    messages.refuseIfFull();
    if (!mayReceiveCodes(request.phone, settings.regions)) {
      observer.refused("number");
      return { kind: "denied" };
    }
    return (
      (await limits.refusalOf(request)) ??
      (await breakerRefusal(prefixOf(request.phone))) ??
      (await limits.count(request))
    );
  }

  function send(phone: string, code: string): void {
    const text = settings.text.replaceAll("{code}", code);
    messages.send({ id: `msg_${randomUUID()}`, phone, code, text });
  }

  return {
    mayBegin,

    async begin(challenge) {
      const code = newCode();
      const session = await sessions.insert(challenge, code);
      if (challenge.isSent) send(challenge.phone, code);
      return session;
    },

    async resend(presented, address) {
      const found = await sessions.find(presented);
      if (!found) return invalid;
      const { phone, clientId, isSent, resendAfterSeconds } = found;
      if (resendAfterSeconds > 0) {
        observer.refused("session");
        return limited(resendAfterSeconds);
      }
      const refusal = await mayBegin({ phone, clientId, address });
      if (refusal) return refusal;
      const code = newCode();
      const session = await sessions.renew(presented, found, code);
      if (!session) return limited(1);
      if (isSent) send(phone, code);
      return { kind: "sent", session };
    },

    async check(presented, otp) {
      const checked = await sessions.check(presented, digitsOf(otp));
      observer.checked(!checked ? "invalid" : checked.isRight ? "right" : "wrong");
      if (!checked) return invalid;
      return checked.isRight
        ? { kind: "right", sessionHash: sessionHashOf(presented.authSession) }
        : { kind: "wrong", session: checked.session };
    },

    stop: () => messages.drain(),
  };
}

/** A code as it was made, of what a user types: with spaces or dashes, in wide or Arabic digits. */
function digitsOf(typed: string): string {
  const text = typed.normalize("NFKC").replace(/[\s\p{Pd}]/gu, "");
  return text.replace(/[\u0660-\u0669\u06f0-\u06f9]/g, (digit) => String(digit.charCodeAt(0) & 0xf));
}

function newCode(): string {
  return randomInt(1_000_000).toString().padStart(6, "0");
}
