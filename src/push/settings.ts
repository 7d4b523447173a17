/** Settings of the push service. A name prefixed `PUSH_` overrides the plain one. */
import { resolveCacheSettings } from "../platform/cache/cache-settings.ts";
import { resolveDatabaseSettings } from "../platform/database/settings.ts";
import { resolveBrokerSettings } from "../platform/messaging/broker-settings.ts";
import type { EnvironmentVariables } from "../platform/settings/environment.ts";
import { originOf, type ServerSettings } from "../platform/settings/server.ts";
import {
  resolveSettings,
  type SettingProblem,
  servicePrefix,
  type TableReading,
} from "../platform/settings/settings.ts";
import { resolveProviderSettings } from "./provider-settings.ts";
import { pushTable } from "./settings-table.ts";

/** Settings of the push service. */
export type PushSettings = Exclude<ReturnType<typeof resolvePushSettings>["value"], undefined>;

/** Values from the process that runs the service. */
export interface PushContext {
  /** The issuer of the auth service in the same process; undefined if there is none. */
  readonly issuer?: string | undefined;
  /** The clients of the auth service in the same process; undefined if there is none. */
  readonly clients?:
    | readonly {
        readonly grantTypes: readonly string[];
        readonly clientSettings: { readonly audiences: readonly string[] };
      }[]
    | undefined;
  /** Generates the values that are not set. Called in development mode only. May throw a SettingsError. */
  readonly generated: () => { readonly apiKey: string };
}

/** The audience of the clients of development mode: this service. */
const developmentAudience = "push";

/**
 * Reads the settings of the push service, its database and its providers. Returns problems instead of throwing them.
 */
export function resolvePushSettings(env: EnvironmentVariables, server: ServerSettings, context: PushContext) {
  const { environment, dataDir } = server;
  const prefix = servicePrefix("push");
  const database = resolveDatabaseSettings(env, { environment, dataDir, service: "push" });
  const broker = resolveBrokerSettings(env, { environment, prefix });
  const cache = resolveCacheSettings(env, { environment, prefix });
  const providers = resolveProviderSettings(env, { environment, dataDir, prefix });
  const table = resolveSettings(pushTable, env, {
    environment,
    prefix,
    placeholders: {
      OAUTH_SERVER_ISSUER: () => context.issuer ?? `${originOf(server)}/api/auth`,
      "http://HOST:GRPC_PORT": () => originOf({ ...server, port: server.grpcPort }),
      "generated API key": () => context.generated().apiKey,
      // Clients that an operator lists may have no audience, or others.
      "audience of the development clients": () =>
        context.clients?.every(
          ({ grantTypes, clientSettings }) =>
            grantTypes.length === 0 || clientSettings.audiences.includes(developmentAudience),
        ) === false
          ? undefined
          : developmentAudience,
    },
  });
  const problems = [
    ...database.problems,
    ...broker.problems,
    ...cache.problems,
    ...table.problems,
    ...crossChecks(table, server),
    ...providers.problems,
  ];
  const settings = table.value;
  if (database.value === undefined || settings === undefined || providers.value === undefined) {
    return { value: undefined, problems };
  }
  const value = {
    database: database.value,
    /** Undefined: events stay inside the process. */
    broker: broker.value,
    /** Undefined: each process counts calls by itself. */
    cache: cache.value,
    /** The `iss` of tokens, as it is written. */
    issuer: settings.IDENTITY_PROVIDER_ISSUER_URI,
    /** The audience that `aud` of tokens must name; undefined: only tokens of the type at+jwt are accepted. */
    audience: isDefaultForOwnIssuer(table, "TOKEN_AUDIENCE") ? undefined : settings.TOKEN_AUDIENCE,
    /** The service that introspects tokens; undefined: revocation is not checked. */
    introspection: introspectionOf(table, settings),
    /** None of them is `backofficeClientId`. */
    userAppClientIds: settings.USER_APP_CLIENT_ID,
    backofficeClientId: settings.BACKOFFICE_CLIENT_ID,
    /** The recipients of test runs. */
    testUserIds: settings.TEST_NOTIFICATION_USER_IDS ?? [],
    maxDevicesPerUser: settings.PUSH_MAX_DEVICES_PER_USER,
    maxSavesPerMinute: settings.PUSH_MAX_SAVES_PER_MINUTE,
    historyRetentionDays: settings.HISTORY_RETENTION_DAYS,
    outcomeRetentionDays: settings.PUSH_OUTCOME_RETENTION_DAYS,
    ttlSeconds: settings.PUSH_TTL_SECONDS,
    /** The values of DeliverySettings. */
    delivery: {
      maxPerSecond: settings.PUSH_MAX_PER_SECOND,
      rampSeconds: settings.PUSH_RAMP_SECONDS,
      maxDeadPercent: settings.PUSH_MAX_DEAD_PERCENT,
      removalDelaySeconds: settings.PUSH_REMOVAL_DELAY_SECONDS,
    },
    providers: providers.value,
    janitorIntervalSeconds: settings.JANITOR_INTERVAL_SECONDS,
  };
  return { value, problems };
}

type PushTable = TableReading<typeof pushTable>;

/** Whether the setting has development's default, which fits our own auth service only, beside another issuer. */
function isDefaultForOwnIssuer({ isGiven }: PushTable, name: keyof typeof pushTable): boolean {
  return isGiven("IDENTITY_PROVIDER_ISSUER_URI") && !isGiven(name);
}

function introspectionOf(table: PushTable, settings: Exclude<PushTable["value"], undefined>) {
  const { IDENTITY_PROVIDER_CLIENT_ID: clientId, IDENTITY_PROVIDER_CLIENT_SECRET: clientSecret } = settings;
  if (clientId !== undefined && clientSecret !== undefined) return { clientId, clientSecret };
  const { PLATFORM_SECURITY_URL: url, PLATFORM_SECURITY_API_KEY: [apiKey] = [] } = settings;
  if (url === undefined || apiKey === undefined || isDefaultForOwnIssuer(table, "PLATFORM_SECURITY_URL"))
    return undefined;
  return { url, apiKey };
}

function crossChecks(
  { valid, isGiven, problem }: PushTable,
  { environment }: ServerSettings,
): readonly SettingProblem[] {
  const problems: SettingProblem[] = [];
  const { BACKOFFICE_CLIENT_ID: backoffice, USER_APP_CLIENT_ID: apps = [] } = valid;
  if (backoffice !== undefined && apps.includes(backoffice)) {
    problems.push(problem("BACKOFFICE_CLIENT_ID", "must differ from USER_APP_CLIENT_ID"));
  }
  const clients = [backoffice, ...apps];
  if (valid.TOKEN_AUDIENCE !== undefined && clients.includes(valid.TOKEN_AUDIENCE)) {
    const what =
      "must be the name of this API, and not the id of a client, which is the audience of ID tokens";
    problems.push(problem("TOKEN_AUDIENCE", what));
  }
  const isIntrospected = isGiven("PLATFORM_SECURITY_URL");
  if (environment === "production" && isIntrospected && !isGiven("PLATFORM_SECURITY_API_KEY")) {
    problems.push(problem("PLATFORM_SECURITY_API_KEY", "is missing, but PLATFORM_SECURITY_URL is set"));
  }
  const [clientId, clientSecret] = [
    "IDENTITY_PROVIDER_CLIENT_ID",
    "IDENTITY_PROVIDER_CLIENT_SECRET",
  ] as const;
  for (const [name, other] of [
    [clientId, clientSecret],
    [clientSecret, clientId],
  ] as const) {
    if (isGiven(other) && !isGiven(name)) problems.push(problem(name, `is missing, but ${other} is set`));
  }
  if (isIntrospected && isGiven(clientId)) {
    problems.push(problem(clientId, "must not be set together with PLATFORM_SECURITY_URL"));
  }
  return problems;
}
