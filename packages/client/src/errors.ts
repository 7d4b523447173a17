/** What goes wrong, by the codes of the contracts. */
import type { ChallengeErrorCode, OAuthErrorCode, ProblemCode } from "@gatepost/contracts/codes";

export type { ChallengeErrorCode, OAuthErrorCode, ProblemCode } from "@gatepost/contracts/codes";

/** Whatever this package throws, but for a `TypeError` that tells of a mistake in the code that calls it. */
export class GatepostError extends Error {
  override readonly name: string = "GatepostError";
}

interface Refused {
  readonly status: number;
  /** Names the request in the logs of the service. */
  readonly requestId: string | undefined;
  readonly body: unknown;
}

/** An OAuth operation has refused a request, for a reason that another try does not change. */
export class OAuthError extends GatepostError {
  override readonly name = "OAuthError";
  readonly code: OAuthErrorCode | ChallengeErrorCode;
  readonly status: number;
  readonly requestId: string | undefined;
  /** Members beside `error` and `error_description`, as the contract has them. */
  readonly body: unknown;

  constructor(code: OAuthErrorCode | ChallengeErrorCode, message: string, refused: Refused) {
    super(message);
    this.code = code;
    this.status = refused.status;
    this.requestId = refused.requestId;
    this.body = refused.body;
  }
}

/** Any other operation has refused a request, for a reason that another try does not change (RFC 9457). */
export class ProblemError extends GatepostError {
  override readonly name = "ProblemError";
  readonly code: ProblemCode;
  readonly status: number;
  readonly requestId: string | undefined;
  /** What is wrong with the input, place by place. */
  readonly errors: readonly { readonly pointer: string; readonly message: string }[];

  constructor(code: ProblemCode, message: string, refused: Refused) {
    super(message);
    this.code = code;
    this.status = refused.status;
    this.requestId = refused.requestId;
    const { errors }: { errors?: ProblemError["errors"] } = Object(refused.body);
    this.errors = errors ?? [];
  }
}

interface Unavailable {
  readonly status?: number;
  readonly requestId?: string | undefined;
  readonly retryAfterSeconds?: number | undefined;
  readonly cause?: unknown;
}

/** The service could not be asked, or could not say: whether the request was carried out is unknown. Try again. */
export class UnavailableError extends GatepostError {
  override readonly name = "UnavailableError";
  /** Undefined where there was no response, or a part of one. */
  readonly status: number | undefined;
  readonly requestId: string | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(message: string, { status, requestId, retryAfterSeconds, cause }: Unavailable = {}) {
    super(message, { cause });
    this.status = status;
    this.requestId = requestId;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/**
 * `none`: there is no session. `ended`: auth has ended it, or another tab or process has signed out. `key_lost`: the key
 * that it is bound to is gone. `signed_out`: by `signOut`. `other_identity`: another user has signed in in the same store.
 */
export type SignedOutReason = "none" | "ended" | "key_lost" | "signed_out" | "other_identity";

/** Nobody is signed in, or no longer: the user has to sign in again. */
export class SignedOutError extends GatepostError {
  override readonly name = "SignedOutError";
  readonly reason: SignedOutReason;

  constructor(reason: SignedOutReason) {
    super(`Nobody is signed in: ${reason}`);
    this.reason = reason;
  }
}

/** What a response that is no success says. A status that promises more of another try is an UnavailableError. */
export function errorOf({ status, headers }: Response, body: unknown): GatepostError {
  const requestId = headers.get("x-request-id") ?? undefined;
  const { error, error_description, code, detail }: Members = Object(body);
  const text = error_description ?? detail ?? `The response has status ${status}.`;
  const isTransient = status === 408 || status === 425 || status === 429 || status >= 500;
  if (!isTransient && error !== undefined) return new OAuthError(error, text, { status, requestId, body });
  if (!isTransient && code !== undefined) return new ProblemError(code, text, { status, requestId, body });
  const seconds = Number(headers.get("retry-after") ?? Number.NaN);
  const retryAfterSeconds = Number.isFinite(seconds) ? seconds : undefined;
  return new UnavailableError(text, { status, requestId, retryAfterSeconds });
}

interface Members {
  readonly error?: OAuthError["code"];
  readonly error_description?: string;
  readonly code?: ProblemCode;
  readonly detail?: string;
}
