/** The kinds of error that only the auth service returns; openapi/auth.yaml lists these and the platform's. */
import { type ErrorKind, ErrorKinds, ServiceError } from "../platform/base/errors.ts";

const taken = { status: 409, grpc: "AlreadyExists", oauth: "invalid_request" } as const;
const invalid = { code: "invalid_request", status: 400, grpc: "InvalidArgument" } as const;
const forbidden = { code: "forbidden", status: 403, grpc: "PermissionDenied" } as const;
const refused = { code: "unauthenticated", status: 401, grpc: "Unauthenticated" } as const;

export const AuthErrorKinds = {
  identityNotFound: {
    code: "identity_not_found",
    status: 404,
    grpc: "NotFound",
    oauth: "invalid_request",
    title: "Identity not found",
  },
  identityIdTaken: { ...taken, code: "identity_id_taken", title: "Identity id taken" },
  identityPhoneTaken: { ...taken, code: "identity_phone_taken", title: "Phone number taken" },
  identityEmailTaken: { ...taken, code: "identity_email_taken", title: "E-mail address taken" },
  /** Introspection over gRPC reports a missing token as INTERNAL: its contract says so. */
  missingToken: { ...invalid, grpc: "Internal", oauth: "invalid_request", title: "Invalid request" },
  invalidClient: { ...refused, oauth: "invalid_client", title: "Not authenticated" },
  invalidGrant: { ...invalid, oauth: "invalid_grant", title: "Invalid grant" },
  unauthorizedClient: {
    ...invalid,
    grpc: "PermissionDenied",
    oauth: "unauthorized_client",
    title: "Unauthorized client",
  },
  /** Credentials that do not permit introspection: 401 as RFC 7662 section 2.3 has it, and what gRPC callers know. */
  mayNotIntrospect: { ...refused, oauth: "unauthorized_client", title: "Unauthorized client" },
  unsupportedGrantType: { ...invalid, oauth: "unsupported_grant_type", title: "Unsupported grant type" },
  invalidScope: { ...invalid, oauth: "invalid_scope", title: "Invalid scope" },
  invalidToken: { ...invalid, oauth: "invalid_token", title: "Invalid token" },
  /** The next step of a challenge (draft-ietf-oauth-first-party-apps section 5.2.2). */
  insufficientAuthorization: {
    ...forbidden,
    oauth: "insufficient_authorization",
    title: "Insufficient authorization",
  },
  invalidSession: { ...invalid, oauth: "invalid_session", title: "Invalid session" },
  accessDenied: { ...forbidden, oauth: "access_denied", title: "Access denied" },
  invalidProof: { ...invalid, oauth: "invalid_dpop_proof", title: "Invalid proof" },
  useNonce: { ...invalid, oauth: "use_dpop_nonce", title: "Nonce needed" },
  invalidAttestation: { ...forbidden, oauth: "invalid_client_attestation", title: "Invalid attestation" },
  useFreshAttestation: { ...forbidden, oauth: "use_fresh_attestation", title: "Attestation expired" },
} as const satisfies Record<string, ErrorKind>;

/** The same error for every grant that fails: no such identity, wrong password, wrong code, used token. */
export function invalidGrant(): ServiceError {
  return new ServiceError(
    AuthErrorKinds.invalidGrant,
    "The grant is not valid: it is wrong, expired, revoked or used.",
  );
}

export function invalidClient(): ServiceError {
  return new ServiceError(
    AuthErrorKinds.invalidClient,
    "Client authentication failed. Send the client's id and secret in the Authorization header, scheme Basic, or as the client is registered to.",
  );
}

/** For who presents no secret, but is no client without one either. */
export function noPublicClient(): ServiceError {
  const detail =
    "No enabled client of the method none has this client_id, or FIRST_PARTY_APPS is not on. See OAUTH_SERVER_CLIENTS.";
  return new ServiceError(AuthErrorKinds.invalidClient, detail);
}

export function identityNotFound(by: "id" | "phone number"): ServiceError {
  return new ServiceError(AuthErrorKinds.identityNotFound, `There is no identity with this ${by}.`);
}

export function authorizationNotFound(): ServiceError {
  return new ServiceError(ErrorKinds.notFound, "The identity has no authorization with this id.");
}
