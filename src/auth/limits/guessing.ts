/**
 * Limits on guessing passwords and one-time codes. A guess counts for its account, which is one however it is named,
 * while that has what was guessed, and for its client. Nothing else that the caller can vary counts.
 */
import { overloaded, ServiceError, tooManyRequests } from "../../platform/base/errors.ts";
import type { Identity } from "../identities/identity.ts";
import type { WorkLimit } from "../work-limit.ts";
import type { AttemptCounters, AttemptRule, Counter, FullCounter } from "./attempt-counters.ts";

/** What is guessed. */
export const guessKinds = ["password", "code"] as const;
export type GuessKind = (typeof guessKinds)[number];

type GuessingRules = Readonly<Record<GuessKind | "client", AttemptRule>>;

/** The rules of this service. The lock-out lasts at most as long as the window. */
export const guessingRules: GuessingRules = {
  /** Wrong passwords of one account. */
  password: { name: "password", failures: 10, windowSeconds: 300 },
  /** Wrong one-time codes of one account. */
  code: { name: "code", failures: 10, windowSeconds: 300 },
  /**
   * Failures of all accounts together, by client. Beyond it only identities pass that the client has an active
   * authorization for. Guesses that are judged at the same time may exceed the limit.
   */
  client: { name: "client", failures: 1000, windowSeconds: 60 },
};

/** Looks at the counters, each after one of them had filled up since the look before. */
const maxRounds = 5;

/** An identity as it was when the guess about it came. */
type GuessedIdentity = Pick<Identity, "id" | "createdAt" | "phone" | "passwordHash">;

/** The account that a guess is about. */
interface Account {
  /** The canonical spelling of the name that the caller gave. */
  readonly name: string;
  /** The identity that has this name; without one, guesses count for the name. */
  readonly identity: GuessedIdentity | undefined;
}

interface Guess {
  readonly kind: GuessKind;
  readonly clientId: string;
  readonly account: Account;
  /** The limit on judging such guesses at the same time. */
  readonly judging: WorkLimit;
}

/** The error of a judge that may have judged the guess all the same. The guess counts for its account alone. */
export class UnknownVerdict extends ServiceError {
  constructor({ kind, message, cause, retryAfterSeconds }: ServiceError) {
    super(kind, message, { cause, ...(retryAfterSeconds !== undefined && { retryAfterSeconds }) });
  }
}

/** What a guess counts for. */
interface GuessCounters {
  readonly own: Counter;
  /** Counts the guess if it is wrong; undefined beyond the client's limit. */
  readonly ofClient: Counter | undefined;
}

/** A guess that was judged. */
interface Judged<T> {
  readonly result: T | undefined;
}

/** What happened to guesses, for events and metrics. */
export interface GuessObserver {
  /** A guess was wrong. @param isLocked whether it was the last one that the window allows */
  failed(kind: GuessKind, clientId: string, account: Account, isLocked: boolean): Promise<void>;
  /** A guess was refused without being judged. */
  refused(rule: string): void;
  /** The counts or the event of a guess that was judged could not be written. */
  notSettled(error: unknown): void;
}

export interface Guessing {
  /**
   * Judges a guess unless a limit is reached or too many guesses are being judged; what is refused does not count.
   * @param judge returns undefined for a wrong guess; if it throws, the guess does not count, or after {@link
   *   UnknownVerdict} for its account alone
   * @throws too_many_requests, or the error of `judging`
   */
  limit<T>(guess: Guess, judge: () => Promise<T | undefined>): Promise<T | undefined>;
  /**
   * Clears the counts of an identity that has proven its phone, so that nobody can lock it out for good. Never rejects.
   */
  phoneProven(identity: GuessedIdentity): Promise<void>;
  /** Clears all counts of an identity, for an operator. */
  unlock(identity: GuessedIdentity): Promise<void>;
}

interface Dependencies {
  readonly rules: GuessingRules;
  readonly counters: AttemptCounters;
  /** Whether the client has an authorization for the identity that has neither ended nor expired. */
  readonly hasActiveAuthorization: (identityId: string, clientId: string) => Promise<boolean>;
  readonly observer: GuessObserver;
}

/** An id that no identity has. */
const nobody = "";

export function createGuessing(dependencies: Dependencies): Guessing {
  const { rules, counters, hasActiveAuthorization, observer } = dependencies;

  function counterOf(kind: GuessKind, { name, identity }: Account): Counter {
    if (identity) return ofIdentity(kind, identity);
    return { rule: rules[kind], subject: `name ${name}` };
  }

  /** By the id, which may have spaces, and by what is guessed: a new password or phone has a new counter. */
  function ofIdentity(kind: GuessKind, { id, createdAt, phone, passwordHash }: GuessedIdentity): Counter {
    const guessed = kind === "password" ? passwordHash : phone;
    return { rule: rules[kind], subject: `identity ${createdAt.getTime()} ${guessed} ${id}` };
  }

  const allOf = (identity: GuessedIdentity) => guessKinds.map((kind) => ofIdentity(kind, identity));

  /** What a right guess sets to zero: a code proves the phone. */
  function clearedBy(kind: GuessKind, account: Account): readonly Counter[] {
    const { identity } = account;
    return kind === "code" && identity ? allOf(identity) : [counterOf(kind, account)];
  }

  /** Looks whether a guess may be judged. Only reads. @throws too_many_requests */
  async function countersOf({ kind, clientId, account }: Guess): Promise<GuessCounters> {
    const own = counterOf(kind, account);
    const ofClient = { rule: rules.client, subject: clientId };
    const full = await counters.full([own, ofClient]);
    for (const one of full) if (one.counter === own) refuse(one);
    const [fullClient] = full;
    if (!fullClient) return { own, ofClient };
    const { identity } = account;
    // Also for nobody, who would otherwise be refused sooner: the time would tell which names identities have.
    const isSignedIn = await hasActiveAuthorization(identity?.id ?? nobody, clientId);
    if (!identity || !isSignedIn) refuse(fullClient);
    return { own, ofClient: undefined };
  }

  /**
   * Counts for the account, judges, and counts a failure for the client. What is not judged does not count.
   * @returns undefined if the counter of the account has filled up meanwhile
   */
  async function countAndJudge<T>(
    { kind, clientId, account }: Guess,
    { own, ofClient }: GuessCounters,
    judge: () => Promise<T | undefined>,
  ): Promise<Judged<T> | undefined> {
    const attempt = await counters.count(own);
    if (!attempt) return undefined;
    let result: T | undefined;
    try {
      result = await judge();
    } catch (error) {
      if (!(error instanceof UnknownVerdict)) await settle([attempt.withdraw()]);
      throw error;
    }
    if (result === undefined) {
      const isLocked = attempt.count >= rules[kind].failures;
      // Not waited for: only what somebody has is written down, so its time would tell that it exists.
      void settle([observer.failed(kind, clientId, account, isLocked)]);
      if (ofClient) await counters.count(ofClient);
    }
    return { result };
  }

  function refuse({ counter, waitSeconds }: FullCounter): never {
    observer.refused(counter.rule.name);
    throw tooManyRequests(waitSeconds);
  }

  /** Waits for writes that follow a guess. Their errors are reported, and do not change the response. */
  async function settle(work: readonly Promise<void>[]): Promise<void> {
    for (const result of await Promise.allSettled(work)) {
      if (result.status === "rejected") observer.notSettled(result.reason);
    }
  }

  return {
    async limit<T>(guess: Guess, judge: () => Promise<T | undefined>) {
      const { kind, account, judging } = guess;
      let judged: Judged<T> | undefined;
      for (let round = 0; round < maxRounds && !judged; round += 1) {
        const wanted = await countersOf(guess);
        judged = await judging.run(() => countAndJudge(guess, wanted, judge));
      }
      if (!judged) throw overloaded;
      const { result } = judged;
      if (result !== undefined) await settle([counters.clear(clearedBy(kind, account))]);
      return result;
    },

    phoneProven: (identity) => settle([counters.clear(allOf(identity))]),
    unlock: (identity) => counters.clear(allOf(identity)),
  };
}
