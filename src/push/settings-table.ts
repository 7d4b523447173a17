/**
 * The table of the push service's settings: parsing, defaults, validation and documentation of each. What
 * takes several of them to check is in settings.ts; those of the push providers are in provider-settings.ts.
 */
import { platformApiKey } from "../platform/settings/api-key.ts";
import {
  baseUrl,
  integer,
  issuerUrl,
  listOf,
  matching,
  plainText,
  type SettingKind,
} from "../platform/settings/kinds.ts";
import type { SettingsTable } from "../platform/settings/settings.ts";

/** gRPC has no place for a path. */
const grpcUrl: SettingKind<string> = {
  expects: "an http or https URL without a path, such as http://auth.internal:9090",
  quotable: true,
  parse: (text, environment) => {
    const parsed = baseUrl.parse(text, environment);
    const isBare = "value" in parsed && new URL(parsed.value).pathname === "/";
    return isBare ? parsed : { problems: [`must be ${grpcUrl.expects}`] };
  },
};

/** A user: the `sub` of a token. */
const userId = matching("1 to 128 characters of A-Z a-z 0-9 . _ ~ : -", /^[A-Za-z0-9._~:-]{1,128}$/);

/** The push service's settings, row by row. */
export const pushTable = {
  issuer: {
    name: "IDENTITY_PROVIDER_ISSUER_URI",
    description: "The `iss` of the access tokens that callers present; its key set is found by discovery.",
    kind: issuerUrl,
    development: "<OAUTH_SERVER_ISSUER>",
    required: true,
    example: "IDENTITY_PROVIDER_ISSUER_URI=https://auth.example.com/api/auth",
  },
  securityUrl: {
    name: "PLATFORM_SECURITY_URL",
    description:
      "Where introspection over gRPC tells whether a token was revoked; without it, tokens are checked by signature and claims only.",
    kind: grpcUrl,
    development: "<http://HOST:GRPC_PORT>",
    example: "PLATFORM_SECURITY_URL=http://auth.internal:9090",
  },
  securityApiKey: {
    name: "PLATFORM_SECURITY_API_KEY",
    description: "The key for PLATFORM_SECURITY_URL; required with it.",
    kind: platformApiKey,
    secret: true,
    development: "<generated API key>",
    example: "PLATFORM_SECURITY_API_KEY_FILE=/run/secrets/platform-security-api-key",
  },
  userAppClientId: {
    name: "USER_APP_CLIENT_ID",
    description: "The OAuth client whose tokens speak for users: device tokens and history.",
    kind: plainText,
    development: "mobile-app",
    required: true,
    example: "USER_APP_CLIENT_ID=mobile-app",
  },
  backofficeClientId: {
    name: "BACKOFFICE_CLIENT_ID",
    description: "The OAuth client whose tokens may send notifications and operate on them.",
    kind: plainText,
    development: "backoffice",
    required: true,
    example: "BACKOFFICE_CLIENT_ID=backoffice",
  },
  testUserIds: {
    name: "TEST_NOTIFICATION_USER_IDS",
    description: "The users that the test trigger sends to; nobody unless named.",
    kind: listOf(userId, "a comma-separated list of user ids"),
    example: "TEST_NOTIFICATION_USER_IDS=u-tester-1,u-tester-2",
  },
  historyRetentionDays: {
    name: "HISTORY_RETENTION_DAYS",
    description: "How many days a user's notifications are kept.",
    kind: integer(1, 3650),
    default: "180",
    example: "HISTORY_RETENTION_DAYS=180",
  },
  maxPerSecond: {
    name: "PUSH_MAX_PER_SECOND",
    description: "Messages a second to one provider, over all processes; 0 is as fast as it takes them.",
    kind: integer(0, 1_000_000),
    development: "0",
    production: "5000",
    example: "PUSH_MAX_PER_SECOND=5000",
  },
  rampSeconds: {
    name: "PUSH_RAMP_SECONDS",
    description: "Seconds in which a notification comes to PUSH_MAX_PER_SECOND; 0 is at once.",
    kind: integer(0, 3600),
    development: "0",
    production: "60",
    example: "PUSH_RAMP_SECONDS=60",
  },
  ttlSeconds: {
    name: "PUSH_TTL_SECONDS",
    description: "Seconds after which a notification is worth nothing: what is not sent by then is dropped.",
    kind: integer(60, 2_419_200),
    default: "86400",
    example: "PUSH_TTL_SECONDS=86400",
  },
  maxDeadPercent: {
    name: "PUSH_MAX_DEAD_PERCENT",
    description:
      "Percent of a notification's devices; where providers report more of them dead, their tokens are no longer removed.",
    kind: integer(1, 100),
    default: "30",
    example: "PUSH_MAX_DEAD_PERCENT=30",
  },
  janitorIntervalSeconds: {
    name: "JANITOR_INTERVAL_SECONDS",
    description: "How many seconds pass between removals of what has expired.",
    kind: integer(1, 86_400),
    default: "60",
    example: "JANITOR_INTERVAL_SECONDS=60",
  },
} as const satisfies SettingsTable;
