/**
 * The secrets of a demo. If `DEMO_TRANSCRIPT` names a file, each secret is appended to it, on a line of its own, after
 * its kind and a tab:
 *
 *     access_token<TAB>eyJhbGciOiJSUzI1NiIsInR5cCI6…
 *
 * Kinds: access_token, refresh_token, auth_session, authorization_code, code_verifier, otp_proof, otp_code, password,
 * client_secret. A test searches databases and logs for them afterwards; it has no other use.
 */
import { appendFileSync } from "node:fs";

export type SecretKind =
  | "access_token"
  | "refresh_token"
  | "auth_session"
  | "authorization_code"
  | "code_verifier"
  | "otp_proof"
  | "otp_code"
  | "password"
  | "client_secret";

/** The names under which requests and responses carry secrets. */
const kinds: ReadonlyMap<string, SecretKind> = new Map([
  ["access_token", "access_token"],
  ["refresh_token", "refresh_token"],
  ["auth_session", "auth_session"],
  ["authorization_code", "authorization_code"],
  ["otpVerificationToken", "otp_proof"],
  ["otp_verification_token", "otp_proof"],
  ["code", "otp_code"],
  ["password", "password"],
]);

const seen = new Set<string>();

export function noteSecret(kind: SecretKind, secret: string): void {
  const file = process.env["DEMO_TRANSCRIPT"];
  if (!file || seen.has(secret)) return;
  seen.add(secret);
  appendFileSync(file, `${kind}\t${secret}\n`, { mode: 0o600 });
}

/** Notes every secret in a body, at any depth. The `code` of an error is not a secret. */
export function noteSecretsIn(value: unknown): void {
  if (typeof value !== "object" || value === null || "status" in value) return;
  for (const [name, member] of Object.entries(value)) {
    const kind = kinds.get(name);
    if (kind !== undefined && typeof member === "string") noteSecret(kind, member);
    else noteSecretsIn(member);
  }
}
