/**
 * Settings of the push service: whose tokens it takes, how it sends, its providers and its database. A name
 * prefixed `PUSH_` overrides the plain one. Nothing here reads `process.env`.
 */
import { type DatabaseSettings, resolveDatabaseSettings } from "../platform/database/settings.ts";
import type { EnvironmentVariables } from "../platform/settings/environment.ts";
import { originOf, type ServerSettings } from "../platform/settings/server.ts";
import {
  type Reading,
  resolveSettings,
  type SettingProblem,
  servicePrefix,
  type TableReading,
} from "../platform/settings/settings.ts";
import { type ProviderSettings, resolveProviderSettings } from "./provider-settings.ts";
import { pushTable } from "./settings-table.ts";

/** Settings of the push service. */
export interface PushSettings {
  readonly database: DatabaseSettings;
  /** The `iss` of tokens; without a trailing slash. */
  readonly issuer: string;
  /** Where revocation is asked about; undefined: it is not. */
  readonly security: { readonly url: string; readonly apiKey: string } | undefined;
  /** Never the same. */
  readonly userAppClientId: string;
  readonly backofficeClientId: string;
  /** The recipients of test runs. */
  readonly testUserIds: readonly string[];
  readonly historyRetentionDays: number;
  readonly ttlSeconds: number;
  /** As DeliverySettings has them. */
  readonly delivery: {
    readonly maxPerSecond: number;
    readonly rampSeconds: number;
    readonly maxDeadPercent: number;
  };
  readonly providers: ProviderSettings;
  readonly janitorIntervalSeconds: number;
}

/** What else the process knows that runs the service. */
export interface PushSurroundings {
  /** The issuer of the auth service in the same process; undefined if it runs none. */
  readonly issuer?: string | undefined;
  /** What development mode generates for what is not set; asked for in no other. May throw a SettingsError. */
  readonly generated: () => { readonly apiKey: string };
}

/** Reads the push service's settings, its database's and its providers' among them, and reports what is wrong instead of throwing it. */
export function resolvePushSettings(
  env: EnvironmentVariables,
  server: ServerSettings,
  surroundings: PushSurroundings,
): Reading<PushSettings> {
  const { environment, dataDir } = server;
  const prefix = servicePrefix("push");
  const database = resolveDatabaseSettings(env, { environment, dataDir, service: "push" });
  const providers = resolveProviderSettings(env, { environment, dataDir, prefix });
  const table = resolveSettings(pushTable, env, {
    environment,
    prefix,
    placeholders: {
      OAUTH_SERVER_ISSUER: () => surroundings.issuer ?? `${originOf(server)}/api/auth`,
      // Any free port is known to nobody yet.
      "http://HOST:GRPC_PORT": () =>
        server.grpcPort === 0 ? undefined : originOf({ ...server, port: server.grpcPort }),
      "generated API key": () => surroundings.generated().apiKey,
    },
  });
  const problems = [
    ...database.problems,
    ...table.problems,
    ...crossChecks(table, server),
    ...providers.problems,
  ];
  if (database.value === undefined || table.value === undefined || providers.value === undefined) {
    return { value: undefined, problems };
  }
  const {
    securityApiKey: apiKey,
    testUserIds,
    maxPerSecond,
    rampSeconds,
    maxDeadPercent,
    ...rest
  } = table.value;
  const { securityUrl, ...plain } = rest;
  // Another issuer's tokens are none that development's own auth service knows.
  const url =
    table.isGiven(pushTable.issuer) && !table.isGiven(pushTable.securityUrl) ? undefined : securityUrl;
  const value: PushSettings = {
    ...plain,
    database: database.value,
    security: url !== undefined && apiKey !== undefined ? { url, apiKey } : undefined,
    testUserIds: testUserIds ?? [],
    delivery: { maxPerSecond, rampSeconds, maxDeadPercent },
    providers: providers.value,
  };
  return { value, problems };
}

function crossChecks(
  { sound, isGiven, problem }: TableReading<typeof pushTable>,
  { environment, grpcPort }: ServerSettings,
): readonly SettingProblem[] {
  const problems: SettingProblem[] = [];
  if (sound.backofficeClientId !== undefined && sound.backofficeClientId === sound.userAppClientId) {
    problems.push(problem(pushTable.backofficeClientId, "must differ from USER_APP_CLIENT_ID"));
  }
  const { securityUrl, securityApiKey } = pushTable;
  if (environment === "production" && isGiven(securityUrl) && !isGiven(securityApiKey)) {
    problems.push(problem(securityApiKey, "is missing, but PLATFORM_SECURITY_URL is set"));
  }
  const hasDefault = isGiven(pushTable.issuer) || grpcPort !== 0;
  if (environment === "development" && !isGiven(securityUrl) && !hasDefault) {
    problems.push(problem(securityUrl, "is missing, and has no default as GRPC_PORT is 0"));
  }
  return problems;
}
