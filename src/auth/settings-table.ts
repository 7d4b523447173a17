/**
 * The table of the auth service's settings: parsing, defaults, validation and documentation of each. What
 * takes several of them to check is in settings.ts.
 */
import { platformApiKey } from "../platform/settings/api-key.ts";
import { baseUrl, integer, issuerUrl, plainText } from "../platform/settings/kinds.ts";
import type { SettingsTable } from "../platform/settings/settings.ts";
import { clientId, clientRegistrations, clientSecret, developmentInternalClient } from "./client-settings.ts";
import { keyId, otpPublicKey, publishedKeys, signingPrivateKey, signingPublicKey } from "./key-settings.ts";

/** Where this server serves the built-in OTP verifier in development mode. */
export const builtInVerifierPath = "/otp-verifier";

/** The auth service's settings, row by row. */
export const authTable = {
  issuer: {
    name: "OAUTH_SERVER_ISSUER",
    description: "The `iss` of every token: the public URL of the service.",
    kind: issuerUrl,
    development: "<http://HOST:SERVER_PORT>/api/auth",
    required: true,
    example: "OAUTH_SERVER_ISSUER=https://auth.example.com/api/auth",
  },
  clients: {
    name: "OAUTH_SERVER_CLIENTS",
    description: "The registered OAuth clients, as JSON.",
    kind: clientRegistrations,
    secret: true,
    development: "<development clients>",
    required: true,
    example: "OAUTH_SERVER_CLIENTS_FILE=/run/secrets/clients.json",
  },
  internalClientId: {
    name: "INTERNAL_CLIENT_ID",
    description: "The id of the internal client, which manages identities.",
    kind: clientId,
    development: developmentInternalClient.clientId,
    required: true,
    example: "INTERNAL_CLIENT_ID=internal",
  },
  internalClientSecret: {
    name: "INTERNAL_CLIENT_SECRET",
    description: "The internal client's secret.",
    kind: clientSecret,
    secret: true,
    development: developmentInternalClient.clientSecret,
    required: true,
    example: "INTERNAL_CLIENT_SECRET_FILE=/run/secrets/internal-client-secret",
  },
  platformSecurityApiKey: {
    name: "PLATFORM_SECURITY_API_KEY",
    description: "The `X-Api-Key` with which a platform may introspect; no key is taken unless it is set.",
    kind: platformApiKey,
    secret: true,
    development: "<generated API key>",
    example: "PLATFORM_SECURITY_API_KEY_FILE=/run/secrets/platform-security-api-key",
  },
  privateKey: {
    name: "RSA_PRIVATE_KEY",
    description: "The key that signs access tokens.",
    kind: signingPrivateKey,
    secret: true,
    development: "<generated private key>",
    required: true,
    example: "RSA_PRIVATE_KEY_FILE=/run/secrets/rsa-private-key.pem",
  },
  publicKey: {
    name: "RSA_PUBLIC_KEY",
    description: "The public half of RSA_PRIVATE_KEY.",
    kind: signingPublicKey,
    development: "<generated public key>",
    required: true,
    example: "RSA_PUBLIC_KEY_FILE=/run/secrets/rsa-public-key.pem",
  },
  keyId: {
    name: "RSA_KEY_ID",
    description: "The `kid` of RSA_PRIVATE_KEY in tokens and in the key set.",
    kind: keyId,
    development: "<generated key id>",
    required: true,
    example: "RSA_KEY_ID=2025-01",
  },
  publishedKeys: {
    name: "RSA_PUBLISHED_KEYS",
    description: "Further public keys of the key set, as a JWKS: the next and the previous, for rotation.",
    kind: publishedKeys,
    default: '{"keys":[]}',
    example: "RSA_PUBLISHED_KEYS_FILE=/run/secrets/published-keys.json",
  },
  otpIssuer: {
    name: "OTP_VERIFICATION_TOKEN_ISSUER",
    description: "The `iss` that an OTP verification token must have.",
    kind: plainText,
    default: "otp-verifier",
    example: "OTP_VERIFICATION_TOKEN_ISSUER=otp-verifier",
  },
  otpPublicKey: {
    name: "OTP_VERIFICATION_TOKEN_PUBLIC_KEY",
    description: "The key that OTP verification tokens are verified with.",
    kind: otpPublicKey,
    development: "<generated OTP public key>",
    required: true,
    example: "OTP_VERIFICATION_TOKEN_PUBLIC_KEY_FILE=/run/secrets/otp-public-key.pem",
  },
  otpVerifierUrl: {
    name: "OTP_VERIFIER_URL",
    description: "Where the OTP verification service is reached.",
    kind: baseUrl,
    development: `<http://HOST:SERVER_PORT>${builtInVerifierPath}`,
    required: true,
    example: "OTP_VERIFIER_URL=https://otp.internal",
  },
  janitorIntervalSeconds: {
    name: "JANITOR_INTERVAL_SECONDS",
    description: "How many seconds pass between removals of what has expired.",
    kind: integer(1, 86_400),
    default: "60",
    example: "JANITOR_INTERVAL_SECONDS=60",
  },
} as const satisfies SettingsTable;
