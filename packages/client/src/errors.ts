/** What goes wrong at auth, by the codes of its contract. */

/** The codes of the OAuth operations (RFC 6749 section 5.2, RFC 9449, and the draft of first-party apps). */
export type OAuthErrorCode =
  | "invalid_request"
  | "invalid_client"
  | "invalid_grant"
  | "unauthorized_client"
  | "unsupported_grant_type"
  | "invalid_scope"
  | "invalid_dpop_proof"
  | "use_dpop_nonce";

/** Auth has refused a request, for a reason that another try does not change. */
export class OAuthError extends Error {
  override readonly name = "OAuthError";
  readonly code: OAuthErrorCode | (string & {});
  readonly status: number;
  readonly requestId: string | undefined;

  constructor(code: string, description: string, status: number, requestId: string | undefined) {
    super(description);
    this.code = code;
    this.status = status;
    this.requestId = requestId;
  }
}

/** Auth could not be asked, or could not say. The session is kept: try again, after `retryAfterSeconds` if it is given. */
export class UnavailableError extends Error {
  override readonly name = "UnavailableError";
  readonly retryAfterSeconds: number | undefined;

  constructor(message: string, retryAfterSeconds: number | undefined, cause: unknown) {
    super(message, { cause });
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** Nobody is signed in, or no longer: the user has to sign in again. */
export class SignedOutError extends Error {
  override readonly name = "SignedOutError";
  readonly reason: SignedOutReason;

  constructor(reason: SignedOutReason) {
    super(`Nobody is signed in: ${reason}`);
    this.reason = reason;
  }
}

/**
 * `none`: there is no session. `ended`: auth has ended it. `key_lost`: the key that it is bound to is gone.
 * `signed_out`: by `signOut`. `other_identity`: another user has signed in in the same store.
 */
export type SignedOutReason = "none" | "ended" | "key_lost" | "signed_out" | "other_identity";
