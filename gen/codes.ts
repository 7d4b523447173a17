/** Generated from openapi/ by `npm run gen`. Do not edit. */

/** The closed list of problem codes, of the auth service and the push service together. */
export type ProblemCode =
  | "invalid_request"
  | "unauthenticated"
  | "forbidden"
  | "not_found"
  | "identity_not_found"
  | "notification_not_found"
  | "dead_letter_not_found"
  | "method_not_allowed"
  | "not_acceptable"
  | "identity_id_taken"
  | "identity_phone_taken"
  | "identity_email_taken"
  | "idempotency_key_reused"
  | "notification_finished"
  | "content_too_large"
  | "unsupported_media_type"
  | "too_many_requests"
  | "internal_error"
  | "unavailable";

/** The closed list of error codes of the challenge. */
export type ChallengeErrorCode =
  | "invalid_request"
  | "invalid_client"
  | "unauthorized_client"
  | "invalid_scope"
  | "insufficient_authorization"
  | "invalid_session"
  | "access_denied"
  | "invalid_dpop_proof"
  | "use_dpop_nonce"
  | "invalid_client_attestation"
  | "use_fresh_attestation"
  | "slow_down";

/** The closed list of OAuth error codes. `invalid_dpop_proof` and `use_dpop_nonce` (RFC 9449) are for clients of the method `none` alone, where a request has the header `DPoP`. */
export type OAuthErrorCode =
  | "invalid_request"
  | "invalid_client"
  | "invalid_grant"
  | "unauthorized_client"
  | "unsupported_grant_type"
  | "invalid_scope"
  | "invalid_token"
  | "invalid_dpop_proof"
  | "use_dpop_nonce"
  | "slow_down"
  | "server_error"
  | "temporarily_unavailable";
