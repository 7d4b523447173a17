/** Settings of the process itself, and the environment that every other table is read with. */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { availableParallelism } from "node:os";
import { createSecureContext } from "node:tls";
import * as v from "valibot";
import { urlHost } from "../base/addresses.ts";
import { codeOf } from "../base/error-code.ts";
import type { EnvironmentVariables } from "./environment.ts";
import {
  type Environment,
  host,
  integer,
  listenPort,
  listOf,
  must,
  network,
  oneOf,
  plainText,
  yesNo,
} from "./kinds.ts";
import { certificatesPem, privateKeyPem } from "./pem.ts";
import {
  type Reread,
  rereadFrom,
  resolveSettings,
  type SettingProblem,
  SettingsError,
  type SettingsTable,
  type TableReading,
} from "./settings.ts";
import { origin } from "./urls.ts";
import { isNear } from "./warnings.ts";

const logLevels = ["trace", "debug", "info", "warn", "error"] as const;

/** Whether the text is "production" but for its case, an edit, or its end. */
function isMisspelled(text: string): boolean {
  const word = text.trim().toLowerCase();
  return text !== "production" && (word === "prod" || word === "production" || isNear(word, "production"));
}

/** Anything but "production" is development, so that production mode is always deliberate. */
const environmentKind = v.pipe(
  v.string(),
  v.check((text) => !isMisspelled(text), "must be spelled production, or be another word for development"),
  v.transform((text): Environment => (text === "production" ? "production" : "development")),
  v.description("production, or anything else for development"),
);

const maxWorkers = 128;
const workersExpectation = `an integer from 1 to ${maxWorkers}, or auto`;

/** How many worker processes; 1 is none beside this one. */
const workers = v.pipe(
  v.string(),
  v.regex(/^(auto|\d{1,3})$/i, must(workersExpectation)),
  v.transform((text) => (/^auto$/i.test(text) ? Math.min(availableParallelism(), maxWorkers) : Number(text))),
  v.minValue(1, must(workersExpectation)),
  v.maxValue(maxWorkers, must(workersExpectation)),
  v.check(
    (count) => count === 1 || process.platform !== "win32",
    "must be 1 on Windows, where processes do not share ports evenly",
  ),
  v.description(workersExpectation),
);

/** Read first: the other tables depend on it. */
export const environmentTable = {
  NODE_ENV: {
    description: "Production mode, in which nothing is generated or assumed, or development mode.",
    kind: environmentKind,
    default: "development",
    example: "production",
  },
} as const satisfies SettingsTable;

export const serverTable = {
  HOST: {
    description: "The address to listen on; 0.0.0.0 is every interface.",
    kind: host,
    development: "127.0.0.1",
    production: "0.0.0.0",
  },
  SERVER_PORT: {
    description: "The port of the HTTP APIs, Connect and gRPC-Web; 0 is any free port.",
    kind: listenPort,
    default: "8080",
  },
  GRPC_PORT: {
    description: "The port of gRPC, Connect and gRPC-Web over HTTP/2; 0 is any free port.",
    kind: listenPort,
    default: "9090",
  },
  MANAGEMENT_PORT: {
    description: "The port of health and metrics; 0 is any free port.",
    kind: listenPort,
    default: "8081",
  },
  WORKERS: {
    description:
      "How many worker processes share SERVER_PORT and GRPC_PORT (docs/operate/workers.md); auto is one for each processor that " +
      "this process may use, and 1 is this process alone.",
    kind: workers,
    default: "1",
    example: "auto",
  },
  TLS_CERT: {
    description:
      "The certificate chain of the HTTP and gRPC ports; without it they speak cleartext. In files, it and its key are read again when they change.",
    kind: certificatesPem,
    exampleFile: "tls-cert.pem",
  },
  TLS_KEY: {
    description: "The private key that belongs to TLS_CERT.",
    kind: privateKeyPem,
    secret: true,
    exampleFile: "tls-key.pem",
  },
  CORS_ORIGINS: {
    description:
      "The origins whose pages may call the HTTP APIs; in development that of Vite's server, in production none unless named.",
    kind: listOf(origin, "a comma-separated list of origins"),
    development: "http://localhost:5173",
    example: "https://app.example.com,https://admin.example.com",
  },
  TRUSTED_PROXIES: {
    description:
      "The networks of the proxies in front, in CIDR notation: from them, `X-Forwarded-For` says who calls. Without it the caller of every request is the proxy, and one limit holds for all.",
    kind: listOf(network, "a comma-separated list of addresses or networks in CIDR notation"),
    example: "10.0.0.0/8,fd00::/8",
  },
  LOGGING_LEVEL: {
    description: "The least severe log lines to write.",
    kind: oneOf(logLevels),
    default: "info",
  },
  ENABLE_DEBUG: {
    description: "YES lowers the logging level to debug; responses say no more than before.",
    kind: yesNo,
    default: "NO",
  },
  EVENT_LOG: {
    description:
      "The file that events are appended to, a JSON line each; standard output unless set. It may be renamed at any time, and is then made anew.",
    kind: plainText,
    example: "/var/log/events.jsonl",
  },
  SHUTDOWN_DELAY_SECONDS: {
    description:
      "How many seconds a process goes on accepting after SIGTERM while it is not ready, so that balancers look elsewhere: longer than they take to notice.",
    kind: integer(0, 600),
    development: "0",
    production: "2",
  },
  SHUTDOWN_GRACE_SECONDS: {
    description: "How many seconds requests in flight have to finish after that.",
    kind: integer(0, 3600),
    default: "20",
  },
  MEMORY_MIN_MB: {
    description: "The initial size of V8's old generation in MiB, of each worker; V8 decides unless set.",
    kind: integer(16, 1_048_576),
    example: "256",
  },
  MEMORY_MAX_MB: {
    description: "The greatest size of V8's old generation in MiB, of each worker; V8 decides unless set.",
    kind: integer(64, 1_048_576),
    example: "1024",
  },
  DATA_DIR: {
    description:
      "Where development mode keeps its generated secrets and its embedded database, which one process at a time can use; unused in production.",
    kind: plainText,
    default: ".data",
  },
} as const satisfies SettingsTable;

export type ServerSettings = ReturnType<typeof resolveServerSettings>["value"];

/** The server's origin, as this machine reaches it. */
export function originOf({ tls, host, port }: Pick<ServerSettings, "tls" | "host" | "port">): string {
  return new URL(`${tls ? "https" : "http"}://${urlHost(host)}:${port}`).origin;
}

function readEnvironment(env: EnvironmentVariables) {
  const { valid, problems } = resolveSettings(environmentTable, env, { environment: "production" });
  return { environment: valid.NODE_ENV ?? "production", problems };
}

/** Reads what a command needs that works on the databases and serves nothing. The value is always defined. */
export function resolveCommandSettings(env: EnvironmentVariables) {
  const { environment, problems: ofMode } = readEnvironment(env);
  const { value, problems: ofFolder } = resolveSettings({ DATA_DIR: serverTable.DATA_DIR }, env, {
    environment,
  });
  const problems = [...ofMode, ...ofFolder];
  // It has a default, so this is a defect of the table and not of the environment.
  if (value === undefined) throw new SettingsError(problems);
  return { value: { environment, dataDir: value.DATA_DIR }, problems };
}

/** Reads the process's settings; returns problems instead of throwing them. The value is always defined. */
export function resolveServerSettings(env: EnvironmentVariables) {
  const { environment, problems: ofMode } = readEnvironment(env);
  const reading = resolveSettings(serverTable, env, { environment });
  const problems = [...ofMode, ...reading.problems, ...crossChecks(reading)];
  const { value: settings } = reading;
  // Every row has a default or is optional, so this is a defect of the table and not of the environment.
  if (settings === undefined) throw new SettingsError(problems);
  const { TLS_CERT: cert, TLS_KEY: key, LOGGING_LEVEL: logLevel } = settings;
  const value = {
    environment,
    host: settings.HOST,
    port: settings.SERVER_PORT,
    grpcPort: settings.GRPC_PORT,
    managementPort: settings.MANAGEMENT_PORT,
    /** Processes that share the ports; 1: this one alone. */
    workers: settings.WORKERS,
    /** PEM texts of a certificate and its key; undefined: cleartext. */
    tls: cert !== undefined && key !== undefined ? { cert, key } : undefined,
    /** Reads them again; undefined where they are not both in files. */
    rereadTls:
      reading.isRereadable("TLS_CERT") && reading.isRereadable("TLS_KEY") ? () => rereadTls(env) : undefined,
    corsOrigins: settings.CORS_ORIGINS ?? [],
    /** In CIDR notation. */
    trustedProxies: settings.TRUSTED_PROXIES ?? [],
    logLevel: settings.ENABLE_DEBUG && logLevel !== "trace" ? "debug" : logLevel,
    eventLog: settings.EVENT_LOG,
    shutdownDelaySeconds: settings.SHUTDOWN_DELAY_SECONDS,
    shutdownGraceSeconds: settings.SHUTDOWN_GRACE_SECONDS,
    memoryMinMb: settings.MEMORY_MIN_MB,
    memoryMaxMb: settings.MEMORY_MAX_MB,
    /** Directory of development mode; in production nothing may be kept there. */
    dataDir: settings.DATA_DIR,
  };
  return { value, problems };
}

function rereadTls(env: EnvironmentVariables): Reread<{ cert: string; key: string }> {
  const { TLS_CERT, TLS_KEY } = serverTable;
  const reading = resolveSettings({ TLS_CERT, TLS_KEY }, env, { environment: "production" });
  const { TLS_CERT: cert, TLS_KEY: key } = reading.valid;
  const problems = [...reading.problems, ...tlsProblems(reading)];
  return rereadFrom({ value: cert && key ? { cert, key } : undefined, problems });
}

/** What keeps OpenSSL from serving with the certificate and its key. */
function tlsProblems({
  valid,
  problem,
}: TableReading<Pick<typeof serverTable, "TLS_CERT" | "TLS_KEY">>): readonly SettingProblem[] {
  const { TLS_CERT: cert, TLS_KEY: key } = valid;
  const isKnown = "TLS_CERT" in valid && "TLS_KEY" in valid;
  if (!isKnown || (!cert && !key)) return [];
  if (!key) return [problem("TLS_KEY", "is missing, but TLS_CERT is set")];
  if (!cert) return [problem("TLS_CERT", "is missing, but TLS_KEY is set")];
  if (!new X509Certificate(cert).checkPrivateKey(createPrivateKey(key))) {
    return [problem("TLS_KEY", "does not belong to the certificate in TLS_CERT")];
  }
  try {
    createSecureContext({ cert, key });
    return [];
  } catch (error) {
    const taken = "RSA of 2048 bits or more, or EC P-256, signed with SHA-256, is taken";
    return [problem("TLS_CERT", `is refused by OpenSSL (${codeOf(error) ?? "unknown reason"}); ${taken}`)];
  }
}

function crossChecks(reading: TableReading<typeof serverTable>): readonly SettingProblem[] {
  const { valid, problem } = reading;
  const { MEMORY_MIN_MB: min, MEMORY_MAX_MB: max } = valid;
  const problems = [...tlsProblems(reading)];
  if (min && max && min > max) {
    problems.push(problem("MEMORY_MIN_MB", `must not be more than MEMORY_MAX_MB, which is ${max}`));
  }
  const taken = new Map<number, string>();
  for (const name of ["SERVER_PORT", "GRPC_PORT", "MANAGEMENT_PORT"] as const) {
    const port = valid[name];
    if (!port) continue;
    const other = taken.get(port);
    if (other) problems.push(problem(name, `must differ from ${other}, which is ${port} too`));
    else taken.set(port, name);
  }
  return problems;
}
