/** The table of the auth service's settings; checks of several are in settings.ts. */
import { overlapping } from "../platform/settings/json.ts";
import { integer, oneOf, plainText, sharedApiKey } from "../platform/settings/kinds.ts";
import type { SettingsTable } from "../platform/settings/settings.ts";
import { baseUrl, confidential, issuerUrl } from "../platform/settings/urls.ts";
import { clientId, clientRegistrations, clientSecret, developmentInternalClient } from "./client-settings.ts";
import { codesTable } from "./codes-settings.ts";
import {
  keyId,
  publishedKeys,
  signingPrivateKey,
  signingPublicKey,
  verificationKeys,
} from "./key-settings.ts";

/** The path of the built-in OTP verifier, which this server has in development mode. */
export const builtInVerifierPath = "/otp-verifier";

/** The auth service's settings, row by row. */
export const authTable = {
  OAUTH_SERVER_ISSUER: {
    description: "The `iss` of every token: the public URL of the service.",
    kind: issuerUrl,
    development: "<http://HOST:SERVER_PORT>/api/auth",
    required: true,
    example: "https://auth.example.com/api/auth",
  },
  OAUTH_SERVER_CLIENTS: {
    description: "The registered OAuth clients, as JSON.",
    kind: clientRegistrations,
    secret: true,
    development: "<development clients>",
    required: true,
    exampleFile: "clients.json",
  },
  OAUTH_SERVER_CLIENTS_REVISION: {
    description:
      "The revision of OAUTH_SERVER_CLIENTS, raised with every change: of two lists the higher one holds. Without it, the last start wins.",
    kind: integer(0, 2_147_483_647),
    example: "1",
  },
  INTERNAL_CLIENT_ID: {
    description: "The id of the internal client, which manages identities.",
    kind: clientId,
    development: developmentInternalClient.clientId,
    required: true,
    example: "internal",
  },
  INTERNAL_CLIENT_SECRET: {
    description: "The internal client's secret.",
    kind: overlapping(clientSecret),
    secret: true,
    development: developmentInternalClient.clientSecret,
    required: true,
    exampleFile: "internal-client-secret",
  },
  PLATFORM_SECURITY_API_KEY: {
    description: "The `X-Api-Key` with which a platform may introspect; no key is taken unless it is set.",
    kind: overlapping(sharedApiKey),
    secret: true,
    development: "<generated API key>",
    exampleFile: "platform-security-api-key",
  },
  RSA_PRIVATE_KEY: {
    description: "The key that signs access tokens.",
    kind: signingPrivateKey,
    secret: true,
    development: "<generated private key>",
    required: true,
    exampleFile: "rsa-private-key.pem",
  },
  RSA_PUBLIC_KEY: {
    description: "The public half of RSA_PRIVATE_KEY.",
    kind: signingPublicKey,
    development: "<generated public key>",
    required: true,
    exampleFile: "rsa-public-key.pem",
  },
  RSA_KEY_ID: {
    description: "The `kid` of RSA_PRIVATE_KEY in tokens and in the key set.",
    kind: keyId,
    development: "<generated key id>",
    required: true,
    example: "2025-01",
  },
  RSA_PUBLISHED_KEYS: {
    description: "Further public keys of the key set, as a JWKS: the next and the previous, for rotation.",
    kind: publishedKeys,
    default: '{"keys":[]}',
    exampleFile: "published-keys.json",
  },
  ACCESS_TOKEN_TYPE: {
    description:
      "The `typ` of issued access tokens: that of RFC 9068, or `JWT` for resource servers that take no other. With `JWT`, push needs `TOKEN_AUDIENCE`. Tokens of the type JWT are inactive where this says at+jwt: change it in all processes at once.",
    kind: oneOf(["at+jwt", "JWT"]),
    default: "at+jwt",
  },
  OTP_VERIFICATION_TOKEN_ISSUER: {
    description: "The `iss` that an OTP verification token must have.",
    kind: plainText,
    default: "otp-verifier",
  },
  OTP_VERIFICATION_TOKEN_AUDIENCE: {
    description:
      "The audience that the `aud` of an OTP verification token must name. A token without `aud` is taken; without this setting, one with `aud` is refused.",
    kind: plainText,
    example: "auth",
  },
  OTP_VERIFICATION_TOKEN_PUBLIC_KEY: {
    description:
      "The key that OTP verification tokens are verified with; several, one after the other, while it is rotated. Needed if a client has the grant `phone_otp_token`.",
    kind: verificationKeys,
    development: "<generated OTP public key>",
    exampleFile: "otp-public-key.pem",
  },
  OTP_VERIFICATION_TOKEN_MAX_SECONDS: {
    description:
      "Seconds after which an OTP verification token is refused, from its `iat` on. Without `iat` its age is unknown: then it is taken in the last so many seconds before its `exp`.",
    kind: integer(30, 86_400),
    default: "600",
  },
  OTP_VERIFIER_URL: {
    description:
      "Where the OTP verification service is reached. Needed if a client has the grant `phone_otp`.",
    kind: confidential(baseUrl),
    development: `<http://HOST:SERVER_PORT>${builtInVerifierPath}`,
    example: "https://otp.internal",
  },
  ...codesTable,
  FIRST_PARTY_APPS: {
    description:
      "`on`: apps without a secret sign their users in, by `/oauth2/v1/authorize-challenge`. Needed if a client has the method `none`; off unless it is set.",
    kind: oneOf(["on", "off"]),
    development: "on",
    example: "on",
  },
  JANITOR_INTERVAL_SECONDS: {
    description: "How many seconds pass between removals of what has expired.",
    kind: integer(1, 86_400),
    default: "60",
  },
} as const satisfies SettingsTable;
