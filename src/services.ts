/** The services of this program, and the settings of those that run: `SERVICES` names them. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import type { AuthSettings } from "./auth/settings.ts";
import type { DevelopmentSecrets } from "./development/secrets.ts";
import { resolveTracingSettings, type TracingSettings } from "./platform/observability/tracing-settings.ts";
import type { EnvironmentVariables } from "./platform/settings/environment.ts";
import { listOf, oneOf } from "./platform/settings/kinds.ts";
import { resolveServerSettings, type ServerSettings } from "./platform/settings/server.ts";
import {
  joinReadings,
  type Reading,
  resolveSettings,
  type SettingProblem,
  type SettingsTable,
} from "./platform/settings/settings.ts";
import type { PushSettings } from "./push/settings.ts";

export const serviceNames = ["auth", "push"] as const;
export type ServiceName = (typeof serviceNames)[number];

export const servicesTable = {
  SERVICES: {
    description: "The services that this process runs; the settings of the others are not looked at.",
    kind: listOf(oneOf(serviceNames), `a comma-separated list of ${serviceNames.join(", ")}`),
    default: serviceNames.join(","),
  },
} as const satisfies SettingsTable;

export interface Settings {
  readonly server: ServerSettings;
  readonly auth?: AuthSettings | undefined;
  readonly push?: PushSettings | undefined;
  /** The settings of tracing; undefined: nothing is traced. */
  readonly tracing?: TracingSettings | undefined;
  /** The settings of a server on these ports: the addresses that development mode derives have the actual numbers. */
  listeningOn(ports: ListeningPorts): Promise<Settings>;
}

export interface ListeningPorts {
  readonly http: number;
  readonly grpc: number;
}

export function resolveServices(
  env: EnvironmentVariables,
  { environment }: Pick<ServerSettings, "environment">,
): Reading<readonly ServiceName[]> {
  const { value, problems } = resolveSettings(servicesTable, env, { environment });
  return { value: value?.SERVICES, problems };
}

/** Reads all settings. @throws SettingsError with every problem of all of them */
export async function readSettings(env: EnvironmentVariables): Promise<Settings> {
  const server = resolveServerSettings(env);
  const services = resolveServices(env, server.value);
  const generated = await generatedSecrets(server.value);
  const auth = services.value?.includes("auth")
    ? (await import("./auth/settings.ts")).resolveAuthSettings(env, server.value, generated)
    : undefined;
  const push = services.value?.includes("push")
    ? (await import("./push/settings.ts")).resolvePushSettings(env, server.value, {
        issuer: auth?.value?.issuer,
        clients: auth?.value?.clients,
        generated,
      })
    : undefined;
  const tracing = resolveTracingSettings(env, server.value);
  const together = {
    value: true,
    problems: [
      ...typeProblems(auth?.value, push?.value),
      ...folderProblems(server.value.dataDir, [auth?.value, push?.value]),
      ...workerProblems(server.value.workers, [auth?.value, push?.value]),
      ...tracing.problems,
    ],
  };
  joinReadings({ server, services, ...(auth && { auth }), ...(push && { push }), together });
  return {
    server: server.value,
    auth: auth?.value,
    push: push?.value,
    tracing: tracing.value,
    async listeningOn({ http, grpc }) {
      if (http === server.value.port && grpc === server.value.grpcPort) return this;
      const { SERVER_PORT_FILE: _http, GRPC_PORT_FILE: _grpc, ...others } = env;
      return readSettings({ ...others, SERVER_PORT: String(http), GRPC_PORT: String(grpc) });
    },
  };
}

/** Push accepts tokens of the type JWT only if an audience distinguishes them from the issuer's other tokens. */
function typeProblems(
  auth: AuthSettings | undefined,
  push: PushSettings | undefined,
): readonly SettingProblem[] {
  const isPlain = auth?.accessTokenType === "JWT" && auth.issuer === push?.issuer;
  if (!isPlain || push.audience !== undefined) return [];
  const what = "is missing, but ACCESS_TOKEN_TYPE is JWT: push would refuse every token";
  return [{ name: "TOKEN_AUDIENCE", what, example: "TOKEN_AUDIENCE=push" }];
}

/** An earlier version kept an embedded database for each service, in a folder with the service's name. */
function folderProblems(
  dataDir: string,
  services: readonly (AuthSettings | PushSettings | undefined)[],
): readonly SettingProblem[] {
  if (!services.some((service) => service?.database.kind === "embedded")) return [];
  const folders = serviceNames
    .map((name) => join(dataDir, name))
    .filter((folder) => existsSync(join(folder, "PG_VERSION")));
  if (folders.length === 0) return [];
  const names = folders.join(" and ");
  const what = `holds databases of an earlier version: delete ${names}, and nothing else, as the keys are there too`;
  return [{ name: "DATA_DIR", what, example: "DATA_DIR=.data-2" }];
}

function workerProblems(
  workers: number,
  services: readonly (AuthSettings | PushSettings | undefined)[],
): readonly SettingProblem[] {
  if (workers === 1 || !services.some((service) => service?.database.kind === "embedded")) return [];
  const what = `makes ${workers} processes, and one alone can use the embedded database: name a PostgreSQL in DB_HOST, or unset it`;
  return [{ name: "WORKERS", what, example: "DB_HOST=postgres.internal" }];
}

/** The secrets of development mode, made or read at first use. Production has none, and does not load their module. */
async function generatedSecrets({ environment, dataDir }: ServerSettings): Promise<() => DevelopmentSecrets> {
  if (environment === "production") {
    return () => {
      throw new Error("Production generates no secrets.");
    };
  }
  const { developmentSecrets } = await import("./development/secrets.ts");
  let secrets: DevelopmentSecrets | undefined;
  return () => {
    secrets ??= developmentSecrets(dataDir);
    return secrets;
  };
}
