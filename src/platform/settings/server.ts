/**
 * Settings of the process itself: where it listens, how it logs and ends. It owns the environment
 * (development or production) that every other table is read in.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { urlHost } from "../base/addresses.ts";
import type { EnvironmentVariables } from "./environment.ts";
import {
  type Environment,
  fixedPort,
  host,
  integer,
  listenPort,
  listOf,
  oneOf,
  origin,
  plainText,
  type SettingKind,
  yesNo,
} from "./kinds.ts";
import { certificatesPem, privateKeyPem } from "./pem.ts";
import {
  type Reading,
  resolveSettings,
  type SettingProblem,
  SettingsError,
  type SettingsTable,
  type TableReading,
} from "./settings.ts";

const logLevels = ["trace", "debug", "info", "warn", "error"] as const;
type LogLevel = (typeof logLevels)[number];

/** Anything but "production" is development: only a deliberate word gives up the safe defaults. */
const environmentKind: SettingKind<Environment> = {
  expects: "production, or anything else for development",
  quotable: true,
  parse: (text) => ({ value: text === "production" ? "production" : "development" }),
};

/** Read first: it decides how the others are read. */
export const environmentTable = {
  environment: {
    name: "NODE_ENV",
    description: "Production mode, in which nothing is generated or assumed, or development mode.",
    kind: environmentKind,
    default: "development",
    example: "NODE_ENV=production",
  },
} as const satisfies SettingsTable;

/** The process's settings, row by row. */
export const serverTable = {
  host: {
    name: "HOST",
    description: "The address to listen on; 0.0.0.0 is every interface.",
    kind: host,
    development: "127.0.0.1",
    production: "0.0.0.0",
    example: "HOST=0.0.0.0",
  },
  port: {
    name: "SERVER_PORT",
    description: "The port of the HTTP APIs, Connect and gRPC-Web.",
    kind: fixedPort,
    default: "8080",
    example: "SERVER_PORT=8080",
  },
  grpcPort: {
    name: "GRPC_PORT",
    description: "The port of native gRPC over HTTP/2; 0 is any free port.",
    kind: listenPort,
    default: "9090",
    example: "GRPC_PORT=9090",
  },
  managementPort: {
    name: "MANAGEMENT_PORT",
    description: "The port of health and metrics; 0 is any free port.",
    kind: listenPort,
    default: "8081",
    example: "MANAGEMENT_PORT=8081",
  },
  tlsCert: {
    name: "TLS_CERT",
    description: "The certificate chain of the HTTP and gRPC ports; without it they speak cleartext.",
    kind: certificatesPem,
    example: "TLS_CERT_FILE=/run/secrets/tls-cert.pem",
  },
  tlsKey: {
    name: "TLS_KEY",
    description: "The private key that belongs to TLS_CERT.",
    kind: privateKeyPem,
    secret: true,
    example: "TLS_KEY_FILE=/run/secrets/tls-key.pem",
  },
  corsOrigins: {
    name: "CORS_ORIGINS",
    description: "The origins whose pages may call the HTTP APIs; none unless named.",
    kind: listOf(origin, "a comma-separated list of origins"),
    example: "CORS_ORIGINS=https://app.example.com,https://admin.example.com",
  },
  logLevel: {
    name: "LOGGING_LEVEL",
    description: "The least severe log lines to write.",
    kind: oneOf(logLevels),
    default: "info",
    example: "LOGGING_LEVEL=info",
  },
  enableDebug: {
    name: "ENABLE_DEBUG",
    description: "YES lowers the logging level to debug; answers say no more than before.",
    kind: yesNo,
    default: "NO",
    example: "ENABLE_DEBUG=NO",
  },
  shutdownGraceSeconds: {
    name: "SHUTDOWN_GRACE_SECONDS",
    description: "How many seconds requests in flight have to finish after SIGTERM.",
    kind: integer(0, 3600),
    default: "20",
    example: "SHUTDOWN_GRACE_SECONDS=20",
  },
  memoryMinMb: {
    name: "MEMORY_MIN_MB",
    description:
      "The initial size of V8's old generation in MiB; as Node was started (`npm start`: 32) unless set.",
    kind: integer(16, 1_048_576),
    example: "MEMORY_MIN_MB=256",
  },
  memoryMaxMb: {
    name: "MEMORY_MAX_MB",
    description: "The greatest size of V8's old generation in MiB; V8 decides unless set.",
    kind: integer(64, 1_048_576),
    example: "MEMORY_MAX_MB=1024",
  },
  dataDir: {
    name: "DATA_DIR",
    description: "Where development mode keeps its database and its generated secrets; unused in production.",
    kind: plainText,
    default: ".data",
    example: "DATA_DIR=.data",
  },
} as const satisfies SettingsTable;

/** Settings of the process. */
export interface ServerSettings {
  readonly environment: Environment;
  /** Address to listen on. */
  readonly host: string;
  readonly port: number;
  /** 0 is any free one, as in managementPort. */
  readonly grpcPort: number;
  readonly managementPort: number;
  /** PEM texts that belong together; undefined: cleartext. */
  readonly tls: { readonly cert: string; readonly key: string } | undefined;
  /** As browsers send them in `Origin`; empty: CORS is off. */
  readonly corsOrigins: readonly string[];
  readonly logLevel: LogLevel;
  readonly shutdownGraceSeconds: number;
  /** MiB; undefined: as Node was started. */
  readonly memoryMinMb: number | undefined;
  readonly memoryMaxMb: number | undefined;
  /** Directory of development mode; in production nothing may be kept there. */
  readonly dataDir: string;
}

/** Where this machine reaches the server: its origin. */
export function originOf({ tls, host, port }: Pick<ServerSettings, "tls" | "host" | "port">): string {
  return new URL(`${tls ? "https" : "http"}://${urlHost(host)}:${port}`).origin;
}

/** Reads the process's settings and reports what is wrong instead of throwing it. A value is always there. */
export function resolveServerSettings(
  env: EnvironmentVariables,
): Reading<ServerSettings> & { readonly value: ServerSettings } {
  const mode = resolveSettings(environmentTable, env, { environment: "production" });
  const environment = mode.sound.environment ?? "production";
  const reading = resolveSettings(serverTable, env, { environment });
  const problems = [...mode.problems, ...reading.problems, ...crossChecks(reading)];
  // Every row has a default or may be absent, so this is a defect of the table and not of the environment.
  if (reading.value === undefined) throw new SettingsError(problems);
  const { tlsCert: cert, tlsKey: key, enableDebug, ...rest } = reading.value;
  const value: ServerSettings = {
    ...rest,
    environment,
    tls: cert !== undefined && key !== undefined ? { cert, key } : undefined,
    corsOrigins: rest.corsOrigins ?? [],
    logLevel: enableDebug && rest.logLevel !== "trace" ? "debug" : rest.logLevel,
  };
  return { value, problems };
}

function crossChecks({ sound, problem }: TableReading<typeof serverTable>): readonly SettingProblem[] {
  const { tlsCert: cert, tlsKey: key, memoryMinMb: min, memoryMaxMb: max } = sound;
  const problems: SettingProblem[] = [];
  if ("tlsCert" in sound && "tlsKey" in sound) {
    if (cert && !key) problems.push(problem(serverTable.tlsKey, "is missing, but TLS_CERT is set"));
    if (key && !cert) problems.push(problem(serverTable.tlsCert, "is missing, but TLS_KEY is set"));
    if (cert && key && !new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))) {
      problems.push(problem(serverTable.tlsKey, "does not belong to the certificate in TLS_CERT"));
    }
  }
  if (min && max && min > max) {
    problems.push(problem(serverTable.memoryMinMb, `must not be more than MEMORY_MAX_MB, which is ${max}`));
  }
  const taken = new Map<number, string>();
  for (const key of ["port", "grpcPort", "managementPort"] as const) {
    const port = sound[key];
    if (!port) continue;
    const other = taken.get(port);
    if (other) problems.push(problem(serverTable[key], `must differ from ${other}, which is ${port} too`));
    else taken.set(port, serverTable[key].name);
  }
  return problems;
}
