/**
 * What was acknowledged to the callers of the load, and what went wrong. It knows nothing of the product but its
 * responses.
 */

/** How far an ending is: a caller that got no response does not know whether it was done. */
export type Ending = "none" | "requested" | "acknowledged";

/** An authorization, as its client sees it. */
export interface Chain {
  /** The id that every access token of it has in its `jti`. */
  readonly authorizationId: string;
  /** Acknowledged access tokens, none of which was revoked by itself. */
  readonly accessTokens: string[];
  /** The newest acknowledged refresh token. */
  refreshToken: string;
  ending: Ending;
}

/** An identity that was acknowledged, with its authorizations. */
export interface Account {
  readonly id: string;
  /** Acknowledged; undefined for an account that has none. */
  readonly password: string | undefined;
  readonly chains: Chain[];
  ending: Ending;
}

/** A request, or a look at whether a server is ready; by performance.now(). */
export interface Attempt {
  readonly of: "request" | "readiness";
  readonly startedAt: number;
  /** Undefined while it is under way. */
  endedAt: number | undefined;
  isRefused: boolean;
}

export class Ledger {
  readonly accounts = new Set<Account>();
  /** Access tokens whose revocation was acknowledged. */
  readonly revoked = new Set<string>();
  /** Authorizations that may have ended as reuse: those that have been counted, and those that a fault has ended so. */
  readonly reused = new Set<string>();
  acknowledged = 0;
  /** Since it began to count, with those that were under way then. */
  attempts: Attempt[] = [];
  /** Acknowledged, and not there afterwards; in words. */
  lost: string[] = [];
  /** Responses that no fault excuses; in words. */
  wrong: string[] = [];

  /** Begins to count anew; what was acknowledged stays, and what is under way may hang from now on. */
  begin(): void {
    this.acknowledged = 0;
    this.attempts = this.attempts.filter(({ endedAt }) => endedAt === undefined);
    this.lost = [];
    this.wrong = [];
  }

  /** Counts an attempt, from its beginning on. @param isRefused says it of what came of it */
  async attempt<T>(of: Attempt["of"], work: () => Promise<T>, isRefused: (result: T) => boolean): Promise<T> {
    const own: Attempt = { of, startedAt: performance.now(), endedAt: undefined, isRefused: false };
    this.attempts.push(own);
    const result = await work();
    own.endedAt = performance.now();
    own.isRefused = isRefused(result);
    return result;
  }

  /**
   * Forgets what has ended, once it has been compared, and all but the newest accounts: those of long ago have lived
   * through every fault since.
   */
  shorten(kept: number): void {
    this.revoked.clear();
    for (const account of this.accounts) {
      if (account.ending !== "none" || this.accounts.size > kept) this.accounts.delete(account);
      const living = account.chains.filter(({ ending }) => ending === "none");
      account.chains.splice(0, Infinity, ...living);
    }
  }
}
