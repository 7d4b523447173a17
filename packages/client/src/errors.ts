/** What goes wrong, by the codes of the contracts. */
import type { ChallengeErrorCode, OAuthErrorCode, ProblemCode } from "@gatepost/contracts/codes";

export type { ChallengeErrorCode, OAuthErrorCode, ProblemCode } from "@gatepost/contracts/codes";

interface Circumstances {
  readonly status?: number;
  readonly requestId?: string | undefined;
  readonly cause?: unknown;
}

/**
 * Whatever this package throws, but for a `TypeError` that tells of a mistake in the code that calls it. As none of the
 * classes below: something that is not gatepost has refused a request, and its message says what to look at.
 */
export class GatepostError extends Error {
  override readonly name: string = "GatepostError";
  /** Undefined where there was no response, or a part of one. */
  readonly status: number | undefined;
  /** Names the request in the logs of the service. */
  readonly requestId: string | undefined;

  constructor(message: string, { status, requestId, cause }: Circumstances = {}) {
    super(message, { cause });
    this.status = status;
    this.requestId = requestId;
  }
}

interface Refused extends Circumstances {
  readonly status: number;
  readonly body: unknown;
}

/** An OAuth operation has refused a request, for a reason that another try does not change. */
export class OAuthError extends GatepostError {
  override readonly name = "OAuthError";
  readonly code: OAuthErrorCode | ChallengeErrorCode;
  declare readonly status: number;
  /** Members beside `error` and `error_description`, as the contract has them. */
  readonly body: unknown;

  constructor(code: OAuthErrorCode | ChallengeErrorCode, message: string, refused: Refused) {
    super(message, refused);
    this.code = code;
    this.body = refused.body;
  }
}

/** Any other operation has refused a request, for a reason that another try does not change (RFC 9457). */
export class ProblemError extends GatepostError {
  override readonly name = "ProblemError";
  readonly code: ProblemCode;
  declare readonly status: number;
  /** What is wrong with the input, place by place. */
  readonly errors: readonly { readonly pointer: string; readonly message: string }[];

  constructor(code: ProblemCode, message: string, refused: Refused) {
    super(message, refused);
    this.code = code;
    const { errors }: { errors?: ProblemError["errors"] } = Object(refused.body);
    this.errors = errors ?? [];
  }
}

type Code = ProblemCode | OAuthErrorCode | ChallengeErrorCode;

interface Unavailable extends Circumstances {
  readonly code?: Code | undefined;
  readonly retryAfterSeconds?: number | undefined;
}

/**
 * Every 408, 425, 429 and 5xx, and no response: try again. After a 429 nothing was done; otherwise it is unknown whether
 * the request was carried out.
 */
export class UnavailableError extends GatepostError {
  override readonly name = "UnavailableError";
  /** Undefined where there was no response, or not one of gatepost. */
  readonly code: Code | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(message: string, circumstances: Unavailable = {}) {
    super(message, circumstances);
    this.code = circumstances.code;
    this.retryAfterSeconds = circumstances.retryAfterSeconds;
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

/** What a response of `host` that is no success says. A status that promises more of another try is an UnavailableError. */
export function errorOf(host: string, { status, headers }: Response, body: unknown): GatepostError {
  const requestId = headers.get("x-request-id") ?? undefined;
  const { error, error_description, code, detail }: Members = Object(body);
  const text = error_description ?? detail;
  if (status === 408 || status === 425 || status === 429 || status >= 500) {
    const circumstances = { status, requestId, retryAfterSeconds: retryAfterIn(headers) };
    const message = text ?? `${host} responded with status ${status}.`;
    return new UnavailableError(message, { ...circumstances, code: [error, code].find(isCode) });
  }
  const refused = { status, requestId, body };
  if (isCode(error)) return new OAuthError(error, text ?? error, refused);
  if (isCode(code)) return new ProblemError(code, text ?? code, refused);
  const next = "look at the base URL, and at what is in front of gatepost.";
  const kind = status < 400 ? "with a redirect" : `with status ${status}`;
  return new GatepostError(`${host} responded ${kind}, and not as gatepost does: ${next}`, refused);
}

/** Those of a newer server, too. */
function isCode<C extends Code>(value: C | undefined): value is C {
  return /^[a-z_]+$/.test(value ?? "");
}

/** Seconds; a date counts from the server's clock, where it is told. */
function retryAfterIn(headers: Headers): number | undefined {
  const value = headers.get("retry-after") ?? "";
  if (/^\d+$/.test(value)) return Number(value);
  const now = Date.parse(headers.get("date") ?? "") || Date.now();
  const seconds = (Date.parse(value) - now) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(seconds, 0);
}

interface Members {
  readonly error?: OAuthError["code"];
  readonly error_description?: string;
  readonly code?: ProblemCode;
  readonly detail?: string;
}
