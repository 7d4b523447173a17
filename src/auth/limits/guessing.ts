/**
 * Limits on guessing passwords and one-time codes. A guess counts for its account, which is one however it is
 * named, and for its client, which bounds guessing one password at many accounts. Neither depends on anything else
 * that the caller can vary, such as X-Forwarded-For.
 */
import { tooManyRequests } from "../../platform/base/errors.ts";
import {
  type AttemptCounters,
  type AttemptRule,
  type CountedAttempt,
  type Counter,
  type FullCounter,
  isFull,
} from "./attempt-counters.ts";

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
   * Failures of all accounts together, by client. Beyond it only identities pass that the client has a live
   * authorization for: the secret of a mobile application is in every phone, so anybody can use this limit up,
   * and must not be able to lock out those who are signed in.
   */
  client: { name: "client", failures: 1000, windowSeconds: 60 },
};

/** Milliseconds that the response to a right guess waits for its counts to be cleared, at most. */
const settleMs = 500;

/** The account that a guess is about. */
interface Account {
  /** The canonical spelling of the name that the caller gave. */
  readonly name: string;
  /** The identity that has this name; without one, guesses count for the name. */
  readonly identityId: string | undefined;
}

/** What happened to guesses, for events and metrics. */
export interface GuessObserver {
  /** A guess was wrong. @param isLocked whether it was the last one that the window allows */
  failed(kind: GuessKind, clientId: string, account: Account, isLocked: boolean): Promise<void>;
  /** A guess was refused without being judged. */
  refused(rule: string): void;
  /** What follows the judgement of a guess could not be written. */
  notSettled(error: unknown): void;
}

export interface Guessing {
  /**
   * Judges a guess unless a limit is reached.
   * @param judge returns undefined for a wrong guess; if it throws, the guess does not count
   * @throws too_many_requests
   */
  limit<T>(
    guess: { readonly kind: GuessKind; readonly clientId: string; readonly account: Account },
    judge: () => Promise<T | undefined>,
  ): Promise<T | undefined>;
  /**
   * The identity has proven its phone: its password and codes may be guessed at anew, so that nobody can lock the owner
   * out for good. Never rejects, and takes half a second at most.
   */
  proven(identityId: string): Promise<void>;
  /** Clears all counts of an identity, for an operator. */
  unlock(identityId: string): Promise<void>;
}

interface Dependencies {
  readonly rules: GuessingRules;
  readonly counters: AttemptCounters;
  /** Whether the client has an authorization for the identity that has neither ended nor expired. */
  readonly hasLiveAuthorization: (identityId: string, clientId: string) => Promise<boolean>;
  readonly observer: GuessObserver;
}

export function createGuessing(dependencies: Dependencies): Guessing {
  const { rules, counters, hasLiveAuthorization, observer } = dependencies;

  function counterOf(kind: GuessKind, { name, identityId }: Account): Counter {
    if (identityId !== undefined) return ofIdentity(kind, identityId);
    return { rule: rules[kind], subject: `name ${name}` };
  }

  /** By the id, exactly as it is: ids are case-sensitive. */
  function ofIdentity(kind: GuessKind, identityId: string): Counter {
    return { rule: rules[kind], subject: `identity ${identityId}` };
  }

  const allOf = (identityId: string) => guessKinds.map((kind) => ofIdentity(kind, identityId));

  /** Counts for the account and the client. @throws too_many_requests */
  async function begin(own: Counter, clientId: string, { identityId }: Account): Promise<CountedAttempt[]> {
    const client = { rule: rules.client, subject: clientId };
    const attempt = await counters.begin(own, [client]);
    if (!isFull(attempt)) {
      const second = await counters.begin(client).catch(async (error: unknown) => {
        // Nothing will be judged.
        await settle([attempt.withdraw()]);
        throw error;
      });
      if (!isFull(second)) return [attempt, second];
      await settle([attempt.withdraw()]);
      return beyond(second);
    }
    return attempt.counter === client ? beyond(attempt) : refuse(attempt);

    /** The client's limit is reached. */
    async function beyond(full: FullCounter): Promise<CountedAttempt[]> {
      if (identityId === undefined || !(await hasLiveAuthorization(identityId, clientId)))
        return refuse(full);
      const alone = await counters.begin(own);
      return isFull(alone) ? refuse(alone) : [alone];
    }
  }

  function refuse({ counter, waitSeconds }: FullCounter): never {
    observer.refused(counter.rule.name);
    throw tooManyRequests(waitSeconds);
  }

  /** What is behind a guess: an error here must not turn its response into another one. */
  async function settle(work: readonly Promise<void>[]): Promise<void> {
    for (const result of await Promise.allSettled(work)) {
      if (result.status === "rejected") observer.notSettled(result.reason);
    }
  }

  /** As {@link settle}; and as what was right is committed, a database that stands still holds the response up no longer. */
  async function settleBriefly(work: readonly Promise<void>[]): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, settleMs);
    });
    await Promise.race([settle(work), late]);
    clearTimeout(timer);
  }

  return {
    async limit({ kind, clientId, account }, judge) {
      const own = counterOf(kind, account);
      const begun = await begin(own, clientId, account);
      let result: Awaited<ReturnType<typeof judge>>;
      try {
        result = await judge();
      } catch (error) {
        await settle(begun.map((attempt) => attempt.withdraw()));
        throw error;
      }
      if (result === undefined) {
        const isLocked = begun.some(({ counter, count }) => counter === own && count >= own.rule.failures);
        // Not waited for: only what somebody has is written down, so its time would tell that it exists.
        void settle([observer.failed(kind, clientId, account, isLocked)]);
      } else {
        const ofClient = begun.filter(({ counter }) => counter !== own);
        await settleBriefly([counters.clear([own]), ...ofClient.map((attempt) => attempt.withdraw())]);
      }
      return result;
    },

    proven: (identityId) => settleBriefly([counters.clear(allOf(identityId))]),
    unlock: (identityId) => counters.clear(allOf(identityId)),
  };
}
