/** Errors that reach callers, over every protocol. Any other thrown value is a defect: callers get `internal_error`. */
import { databaseTrouble, isDatabaseUnavailable } from "./database-errors.ts";

/** An error's status over gRPC, by its name, which is written in this way in most languages. */
type GrpcStatus =
  | ("Canceled" | "Unknown" | "InvalidArgument" | "DeadlineExceeded" | "NotFound" | "AlreadyExists")
  | ("PermissionDenied" | "ResourceExhausted" | "FailedPrecondition" | "Aborted" | "OutOfRange")
  | ("Unimplemented" | "Internal" | "Unavailable" | "DataLoss" | "Unauthenticated");

export interface ErrorKind {
  /** Member of the closed list in the service's OpenAPI document. */
  readonly code: string;
  readonly status: number;
  readonly grpc: GrpcStatus;
  /** `error` of RFC 6749 section 5.2 and its registry, for the OAuth operations. */
  readonly oauth: string;
  /** RFC 9457 `title`: the same text for every error of the kind. */
  readonly title: string;
}

/** The kinds that any service can return. */
export const ErrorKinds = {
  invalidRequest: {
    code: "invalid_request",
    status: 400,
    grpc: "InvalidArgument",
    oauth: "invalid_request",
    title: "Invalid request",
  },
  unauthenticated: {
    code: "unauthenticated",
    status: 401,
    grpc: "Unauthenticated",
    oauth: "invalid_client",
    title: "Not authenticated",
  },
  forbidden: {
    code: "forbidden",
    status: 403,
    grpc: "PermissionDenied",
    oauth: "unauthorized_client",
    title: "Forbidden",
  },
  notFound: {
    code: "not_found",
    status: 404,
    grpc: "NotFound",
    oauth: "invalid_request",
    title: "Not found",
  },
  methodNotAllowed: {
    code: "method_not_allowed",
    status: 405,
    grpc: "Unimplemented",
    oauth: "invalid_request",
    title: "Method not allowed",
  },
  notAcceptable: {
    code: "not_acceptable",
    status: 406,
    grpc: "InvalidArgument",
    oauth: "invalid_request",
    title: "Not acceptable",
  },
  contentTooLarge: {
    code: "content_too_large",
    status: 413,
    grpc: "ResourceExhausted",
    oauth: "invalid_request",
    title: "Content too large",
  },
  unsupportedMediaType: {
    code: "unsupported_media_type",
    status: 415,
    grpc: "InvalidArgument",
    oauth: "invalid_request",
    title: "Unsupported media type",
  },
  tooManyRequests: {
    code: "too_many_requests",
    status: 429,
    grpc: "ResourceExhausted",
    oauth: "slow_down",
    title: "Too many requests",
  },
  internal: {
    code: "internal_error",
    status: 500,
    grpc: "Internal",
    oauth: "server_error",
    title: "Internal server error",
  },
  unavailable: {
    code: "unavailable",
    status: 503,
    grpc: "Unavailable",
    oauth: "temporarily_unavailable",
    title: "Service unavailable",
  },
} as const satisfies Record<string, ErrorKind>;

export interface InputError {
  /** JSON pointer that begins with /body, /path, /query or /header. */
  readonly pointer: string;
  readonly message: string;
}

interface ServiceErrorOptions {
  /** The error behind this one, for the log only; never sent. */
  readonly cause?: unknown;
  readonly errors?: readonly InputError[];
  /** Seconds, whole, at least 1. Sent as `Retry-After`. */
  readonly retryAfterSeconds?: number;
  /** Sent as `Allow`. */
  readonly allow?: readonly string[];
  /** Further headers, as they are sent. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Further members of an OAuth error. */
  readonly members?: Readonly<Record<string, unknown>>;
}

/** An error whose kind and detail may be shown to the caller. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  readonly kind: ErrorKind;
  readonly errors: readonly InputError[] | undefined;
  readonly retryAfterSeconds: number | undefined;
  readonly allow: readonly string[] | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;
  readonly members: Readonly<Record<string, unknown>> | undefined;

  /** @param detail the problem and its remedy, for the caller: no secret, no SQL */
  constructor(kind: ErrorKind, detail: string, options: ServiceErrorOptions = {}) {
    super(detail, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.errors = options.errors;
    this.retryAfterSeconds = options.retryAfterSeconds;
    this.allow = options.allow;
    this.headers = options.headers;
    this.members = options.members;
  }
}

export const isOfKind = (error: unknown, kinds: readonly ErrorKind[]): boolean =>
  error instanceof ServiceError && kinds.includes(error.kind);

/** Invalid places that one response names, at most. */
export const mostErrors = 20;

/** An error for invalid input, with a pointer to each invalid place, up to {@link mostErrors}; `detail` names the first. */
export function invalidInput(all: readonly InputError[]): ServiceError {
  const errors = all.slice(0, mostErrors);
  const first = errors[0];
  const detail = first
    ? `The request is not valid: ${first.pointer} ${first.message}.`
    : "The request is not valid.";
  return new ServiceError(ErrorKinds.invalidRequest, detail, { errors });
}

/** An error for a dependency that does not respond. `what` begins the sentence, as in "The database". */
export function unavailable(what: string, cause: unknown, retryAfterSeconds = 2): ServiceError {
  return new ServiceError(ErrorKinds.unavailable, `${what} does not answer. Try again in a moment.`, {
    cause,
    retryAfterSeconds,
  });
}

/** What the log says of an error: where the database is its cause, what is wrong with that, which no caller is told. */
export function logMessage({ cause, message }: ServiceError): string {
  return databaseTrouble(cause) ?? message;
}

/** An error for a request that is refused because too many arrive. */
export const overloaded = new ServiceError(
  ErrorKinds.unavailable,
  "More requests arrive than can be answered. Try again in a moment.",
  { retryAfterSeconds: 1 },
);

/** An error for too many attempts. @param seconds until the next attempt is allowed */
export function tooManyRequests(seconds: number): ServiceError {
  const wait = Math.max(1, Math.ceil(seconds));
  return new ServiceError(
    ErrorKinds.tooManyRequests,
    `Too many failed attempts. Wait ${wait} seconds and try again.`,
    {
      retryAfterSeconds: wait,
    },
  );
}

/** A thrown value as one for the caller: `unavailable` for the database's absence, `internal_error` for a defect. */
export function asServiceError(thrown: unknown): ServiceError {
  if (thrown instanceof ServiceError) return thrown;
  if (isDatabaseUnavailable(thrown)) return unavailable("The database", thrown);
  return new ServiceError(
    ErrorKinds.internal,
    "Something went wrong here. Quote the request id when you report it.",
    { cause: thrown },
  );
}
