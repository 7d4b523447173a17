/** What a caller is told whose request is not let in: RFC 6750 section 3, and its counterparts in gRPC. */

/** `no_token`: none was sent. `unavailable`: whether the token is good cannot be known at the moment. */
export type RefusalCode = "no_token" | "invalid_token" | "insufficient_scope" | "unavailable";

export interface Refusal {
  readonly code: RefusalCode;
  /** A sentence for the caller, without a secret. */
  readonly message: string;
  readonly status: 401 | 403 | 503;
  /** UNAUTHENTICATED, PERMISSION_DENIED or UNAVAILABLE. */
  readonly grpcCode: 16 | 7 | 14;
  /** `www-authenticate` or `retry-after`, in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

const kinds = {
  no_token: { status: 401, grpcCode: 16, message: "An access token is needed" },
  invalid_token: { status: 401, grpcCode: 16, message: "The access token is not valid" },
  insufficient_scope: { status: 403, grpcCode: 7, message: "The access token lacks a scope" },
  unavailable: { status: 503, grpcCode: 14, message: "The access token cannot be checked at the moment" },
} as const;

/** The refusals of one API. @param realm visible ASCII characters */
export function createRefusals(realm: string) {
  const bearer = `Bearer realm="${realm.replaceAll(/["\\]/g, "\\$&")}"`;

  function refusal(code: RefusalCode, headers: Readonly<Record<string, string>>): Refusal {
    return { code, ...kinds[code], headers };
  }
  function challenge(code: "invalid_token" | "insufficient_scope", scope = ""): Refusal {
    const detail = `${bearer}, error="${code}", error_description="${kinds[code].message}"`;
    return refusal(code, { "www-authenticate": detail + scope });
  }

  return {
    // Who sends no token is told nothing more (RFC 6750 section 3.1).
    noToken: refusal("no_token", { "www-authenticate": bearer }),
    invalidToken: challenge("invalid_token"),
    insufficientScope: (scopes: readonly string[]) =>
      challenge("insufficient_scope", `, scope="${scopes.join(" ")}"`),
    unavailable: (retryAfterSeconds: number) =>
      refusal("unavailable", { "retry-after": String(retryAfterSeconds) }),
  };
}

/** The body over HTTP (RFC 9457), with its headers. */
export function httpResponse({ status, code, message, headers }: Refusal) {
  return {
    headers: { ...headers, "content-type": "application/problem+json", "cache-control": "no-store" },
    body: JSON.stringify({ title: message, status, code }),
  };
}
