/** Finds settings that this version does not have, or that the process does not use, in the tables of all services. */
import { codesTable } from "./auth/codes-settings.ts";
import type { AuthSettings } from "./auth/settings.ts";
import { authTable } from "./auth/settings-table.ts";
import { cacheTable } from "./platform/cache/cache-settings.ts";
import { databaseTable, migrationTable } from "./platform/database/settings.ts";
import { brokerTable } from "./platform/messaging/broker-settings.ts";
import { tracingTable } from "./platform/observability/tracing-settings.ts";
import type { EnvironmentVariables } from "./platform/settings/environment.ts";
import { environmentTable, serverTable } from "./platform/settings/server.ts";
import { type SettingsTable, servicePrefix } from "./platform/settings/settings.ts";
import { type KnownSetting, settingWarnings } from "./platform/settings/warnings.ts";
import { type ProviderName, providerTable } from "./push/provider-settings.ts";
import { pushTable } from "./push/settings-table.ts";
import { type ServiceName, type Settings, serviceNames, servicesTable } from "./services.ts";

const tables: Readonly<Record<ServiceName, SettingsTable>> = {
  auth: authTable,
  push: { ...pushTable, ...providerTable },
};
const processTable: SettingsTable = { ...environmentTable, ...servicesTable, ...serverTable };
/** The settings that every service has, each with the service's prefix too. */
const commonTable: SettingsTable = { ...databaseTable, ...migrationTable, ...brokerTable, ...cacheTable };

/** First words of our names with which names of other programs begin, too, such as those of systemd (MEMORY). */
const sharedWords = new Set(
  "ACCESS DATA ENABLE EVENT GRPC IDENTITY MEMORY NODE PLATFORM SERVER TEST USER".split(" "),
);

/** The prefixes of our names: the first word, or two where it is shared. Those of tracing are OpenTelemetry's. */
const prefixes: readonly string[] = [
  ...new Set(
    [processTable, commonTable, ...Object.values(tables)].flatMap(Object.keys).flatMap((name) => {
      const [first = "", ...others] = name.split("_");
      const words = sharedWords.has(first) ? [first, ...others.splice(0, 1)] : [first];
      return others.length > 0 ? [`${words.join("_")}_`] : [];
    }),
  ),
  ...serviceNames.map(servicePrefix),
];

/** A sentence for each variable that has no effect, and for what is missing though the process starts without it. */
export function warningsOf(env: EnvironmentVariables, settings: Settings): readonly string[] {
  const { environment } = settings.server;
  const ofProcess = Object.keys(processTable).map((name) => ({
    name,
    unused: name === "DATA_DIR" && environment === "production" ? "NODE_ENV is production" : undefined,
  }));
  const ofTraces = Object.keys(tracingTable).map((name) => ({
    name,
    unused: settings.tracing ? undefined : "OTEL_EXPORTER_OTLP_ENDPOINT is not set",
  }));
  // For a name that both services have, the warning is about the service that runs.
  const services = serviceNames.toSorted((a, b) => Number(!settings[a]) - Number(!settings[b]));
  const ofServices = services.flatMap((service) =>
    Object.keys({ ...commonTable, ...tables[service] }).flatMap((name) => {
      const unused = whyUnused(service, name, settings);
      return [name, servicePrefix(service) + name].map((variable) => ({ name: variable, unused }));
    }),
  );
  const known: readonly KnownSetting[] = [...ofProcess, ...ofTraces, ...ofServices];
  return [...settingWarnings(env, known, prefixes), ...missing(settings)];
}

function missing({ server, auth, push }: Settings): readonly string[] {
  const isApart = push && !auth && !push.broker;
  const hasOneCopy = [auth, push].some(
    (service) => service?.broker && service.broker.servers.length > 1 && service.broker.replicas === 1,
  );
  const hasCodesApart = server.workers > 1 && auth?.otp.builtIn;
  const isOpen = [auth, push].some((service) => service?.broker && service.broker.credentials === undefined);
  return [
    ...(isApart
      ? [
          "BROKER_URL is not set: a push service that runs apart does not learn which identities are deleted, nor which authorizations end",
        ]
      : []),
    ...(hasCodesApart
      ? [
          "WORKERS is more than 1: each worker has a built-in verifier of one-time codes of its own, which does not know the codes of the others; set OTP_VERIFIER_URL, or unset WORKERS",
        ]
      : []),
    ...(hasOneCopy
      ? [
          "BROKER_URL lists several servers, and BROKER_REPLICAS is 1: an event is lost with the disk of one server, and nobody notices; set it to 3",
        ]
      : []),
    ...(auth?.cache && auth.cache.password === undefined && server.environment === "production"
      ? ["CACHE_PASSWORD is not set: whatever reaches the cache can reset the limits on guessing"]
      : []),
    ...(isOpen && server.environment === "production"
      ? ["BROKER_CREDENTIALS is not set: whatever reaches the broker can have a user's devices removed"]
      : []),
  ];
}

/** Whether the setting names authorities of certificates for connections without any. */
function isForCleartext(
  name: string,
  { database, cache }: Pick<AuthSettings, "database" | "cache">,
): boolean {
  if (name === "DB_SSL_CA") return database.kind === "postgres" && database.ssl === "disable";
  return name === "CACHE_CA" && cache?.isSecure === false;
}

const providers: Readonly<Record<string, ProviderName>> = { FCM_: "fcm", APNS_: "apns", WEBPUSH_: "webpush" };

function whyUnused(service: ServiceName, name: string, settings: Settings): string | undefined {
  const { [service]: own, auth, push } = settings;
  if (!own) return `SERVICES does not name ${service}`;
  if (settings.server.environment === "production" && name in migrationTable)
    return "in production only npm run migrate uses it, so a server need not know it";
  if (own.database.kind === "embedded" && name.startsWith("DB_"))
    return "without DB_HOST the database is embedded";
  if (isForCleartext(name, own)) return "connections are not encrypted";
  if (!own.broker && name.startsWith("BROKER_") && name !== "BROKER_URL") return "BROKER_URL is not set";
  if (!own.cache && name.startsWith("CACHE_") && name !== "CACHE_HOST") return "CACHE_HOST is not set";
  if (name in codesTable && !auth?.codes) return "OTP_VERIFIER is not set";
  return service === "push" && push ? whyUnusedByPush(name, push) : undefined;
}

function whyUnusedByPush(name: string, push: NonNullable<Settings["push"]>): string | undefined {
  if (name === "DB_READ_HOSTS") return "only the introspection of auth reads from standbys";
  const provider = providers[/^[A-Z]+_/.exec(name)?.[0] ?? ""];
  if (provider && !push.providers.names.includes(provider)) return `PUSH_PROVIDERS does not name ${provider}`;
  const isAskedOverGrpc = push.introspection !== undefined && "url" in push.introspection;
  return name === "PLATFORM_SECURITY_API_KEY" && !isAskedOverGrpc
    ? "PLATFORM_SECURITY_URL is not set"
    : undefined;
}
