/** What a caller learns of tokens and identities, so that neither a failover nor a standby takes it back. */

export interface Confirmed {
  /**
   * Resolves once every standby that any process reads from has replayed all that is committed, or is no longer relied
   * on. Called before a response from which the caller learns that something has ended.
   */
  untilStandbysKnow(): Promise<void>;
  /**
   * Calls `act`, which reads or is refused, and returns its outcome. If that rests on a commit of another request, it
   * first makes a commit of its own, which the standbys confirm, and calls `act` again.
   * @param isFound whether the outcome rests on a commit of another request
   */
  confirmFound<T>(act: () => Promise<T>, isFound: (outcome: PromiseSettledResult<T>) => boolean): Promise<T>;
}
