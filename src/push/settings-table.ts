/** The table of the push service's settings; checks of several are in settings.ts. */
import { overlapping } from "../platform/settings/json.ts";
import { integer, listOf, matching, plainText, sharedApiKey } from "../platform/settings/kinds.ts";
import type { SettingsTable } from "../platform/settings/settings.ts";
import { confidential, foreignIssuerUrl, serverUrl } from "../platform/settings/urls.ts";

/** The id of a user: the `sub` of a token. A comma would end it in a list. */
const userId = matching(
  "1 to 256 characters without a comma and without control characters",
  /^[^,\p{Cc}\p{Cs}]{1,256}$/u,
);

/** The push service's settings, row by row. */
export const pushTable = {
  IDENTITY_PROVIDER_ISSUER_URI: {
    description:
      "The `iss` of the access tokens that callers present, exactly as it stands there; its key set is found by discovery.",
    kind: foreignIssuerUrl,
    development: "<OAUTH_SERVER_ISSUER>",
    required: true,
    example: "https://auth.example.com/api/auth",
  },
  TOKEN_AUDIENCE: {
    description:
      "What the `aud` of access tokens must name; without it, only tokens whose `typ` is at+jwt are accepted, whatever their `aud`.",
    kind: plainText,
    development: "<audience of the development clients>",
    example: "push",
  },
  IDENTITY_PROVIDER_CLIENT_ID: {
    description:
      "The client of this service at the issuer, whose introspection endpoint then shows whether a token was revoked; not together with PLATFORM_SECURITY_URL.",
    kind: plainText,
    example: "push-service",
  },
  IDENTITY_PROVIDER_CLIENT_SECRET: {
    description: "The secret of IDENTITY_PROVIDER_CLIENT_ID; required with it.",
    kind: plainText,
    secret: true,
    exampleFile: "identity-provider-client-secret",
  },
  PLATFORM_SECURITY_URL: {
    description:
      "The gRPC service whose introspection shows whether a token was revoked; without it and IDENTITY_PROVIDER_CLIENT_ID, tokens are checked by signature and claims only.",
    kind: confidential(serverUrl),
    development: "<http://HOST:GRPC_PORT>",
    example: "http://auth.internal:9090",
  },
  PLATFORM_SECURITY_API_KEY: {
    description: "The key for PLATFORM_SECURITY_URL, which gets the first of two; required with it.",
    kind: overlapping(sharedApiKey),
    secret: true,
    development: "<generated API key>",
    exampleFile: "platform-security-api-key",
  },
  USER_APP_CLIENT_ID: {
    description:
      "The OAuth clients whose tokens speak for users: device tokens and history. Several while a new application takes the place of an old one.",
    kind: listOf(plainText, "a comma-separated list of client ids"),
    development: "app,backend",
    required: true,
    example: "app",
  },
  BACKOFFICE_CLIENT_ID: {
    description: "The OAuth client whose tokens may send notifications and operate on them.",
    kind: plainText,
    development: "backoffice",
    required: true,
    example: "backoffice",
  },
  TEST_NOTIFICATION_USER_IDS: {
    description: "The users that the test trigger sends to; none by default.",
    kind: listOf(userId, "a comma-separated list of user ids"),
    example: "u-tester-1,u-tester-2",
  },
  HISTORY_RETENTION_DAYS: {
    description: "How many days a user's notifications are kept.",
    kind: integer(1, 3650),
    default: "180",
  },
  PUSH_OUTCOME_RETENTION_DAYS: {
    description:
      "How many days after a notification to at most 1,000 named users it is kept what became of each device.",
    kind: integer(1, 3650),
    default: "7",
  },
  PUSH_MAX_DEVICES_PER_USER: {
    description: "Devices that a user may have; the one that was renewed longest ago gives way to another.",
    kind: integer(1, 1_000),
    default: "20",
  },
  PUSH_MAX_SAVES_PER_MINUTE: {
    description:
      "Times that a user may save devices in a minute, at each process, or at all of them together where CACHE_HOST is set. An app does so when it starts.",
    kind: integer(1, 1_000_000),
    default: "60",
  },
  PUSH_MAX_PER_SECOND: {
    description: "Messages a second to one provider, over all processes; 0 is as fast as it takes them.",
    kind: integer(0, 1_000_000),
    development: "0",
    production: "5000",
  },
  PUSH_RAMP_SECONDS: {
    description: "Seconds over which a notification's rate rises to PUSH_MAX_PER_SECOND; 0 is at once.",
    kind: integer(0, 3600),
    development: "0",
    production: "60",
  },
  PUSH_TTL_SECONDS: {
    description:
      "Seconds after which a notification expires: messages that are not sent by then are dropped.",
    kind: integer(60, 2_419_200),
    default: "86400",
  },
  PUSH_MAX_DEAD_PERCENT: {
    description:
      "If a provider reports more than this percentage dead of the users that it last responded about, no token is removed until an operator decides.",
    kind: integer(1, 100),
    default: "30",
  },
  PUSH_REMOVAL_DELAY_SECONDS: {
    description:
      "Seconds between the report that a token is dead and its removal, so that the safety stop can act first.",
    kind: integer(0, 604_800),
    development: "5",
    production: "3600",
  },
  JANITOR_INTERVAL_SECONDS: {
    description: "How many seconds pass between removals of what has expired.",
    kind: integer(1, 86_400),
    default: "60",
  },
} as const satisfies SettingsTable;
