/**
 * Settings of the auth service: its issuer, clients, keys, OTP verification and database. A name prefixed
 * `AUTH_` overrides the plain one. Nothing here reads `process.env`.
 */
import { urlHost } from "../platform/base/addresses.ts";
import { type DatabaseSettings, resolveDatabaseSettings } from "../platform/database/settings.ts";
import type { EnvironmentVariables } from "../platform/settings/environment.ts";
import { isLoopback } from "../platform/settings/kinds.ts";
import { originOf, type ServerSettings } from "../platform/settings/server.ts";
import {
  type Reading,
  resolveSettings,
  type SettingProblem,
  servicePrefix,
  type TableReading,
} from "../platform/settings/settings.ts";
import { type ClientRegistration, developmentClients } from "./client-settings.ts";
import { isKeyPair, type PublishedKey } from "./key-settings.ts";
import { authTable, builtInVerifierPath } from "./settings-table.ts";

export type { ClientRegistration, GrantType } from "./client-settings.ts";

/** Settings of the auth service. Keys are PEM texts, checked to be safe and to belong together. */
export interface AuthSettings {
  readonly database: DatabaseSettings;
  /** The `iss` of tokens; without a trailing slash. */
  readonly issuer: string;
  readonly clients: readonly ClientRegistration[];
  /** Not one of the clients. */
  readonly internalClient: { readonly clientId: string; readonly clientSecret: string };
  /** Undefined: no API key is taken. */
  readonly platformSecurityApiKey: string | undefined;
  readonly signing: {
    readonly privateKey: string;
    readonly publicKey: string;
    /** `kid`; none of the published keys has it. */
    readonly keyId: string;
    /** Beside the signing key. */
    readonly publishedKeys: readonly PublishedKey[];
  };
  readonly otp: {
    readonly issuer: string;
    readonly publicKey: string;
    /** Without a trailing slash. */
    readonly verifierUrl: string;
    /** Whether that is the verifier which this server has built in; never in production. */
    readonly builtIn: boolean;
  };
  readonly janitorIntervalSeconds: number;
}

/** What development mode generates for what is not set. Keys are PEM texts: PKCS #8, SPKI. */
export interface GeneratedSecrets {
  readonly signing: { readonly keyId: string; readonly privateKey: string; readonly publicKey: string };
  readonly otp: { readonly publicKey: string };
  readonly apiKey: string;
}

/**
 * Reads the auth service's settings, its database's among them, and reports what is wrong instead of throwing it.
 *
 * @param generated asked in development only, and only for what is not set; may throw a SettingsError
 */
export function resolveAuthSettings(
  env: EnvironmentVariables,
  server: ServerSettings,
  generated: () => GeneratedSecrets,
): Reading<AuthSettings> {
  const { environment, dataDir } = server;
  const database = resolveDatabaseSettings(env, { environment, dataDir, service: "auth" });
  const placeholders = placeholdersOf(server, generated);
  const table = resolveSettings(authTable, env, { environment, prefix: servicePrefix("auth"), placeholders });
  const problems = [...database.problems, ...table.problems, ...crossChecks(table, server)];
  if (database.value === undefined || table.value === undefined) return { value: undefined, problems };
  const { issuer, clients, platformSecurityApiKey, janitorIntervalSeconds, ...rest } = table.value;
  const { privateKey, publicKey, keyId, publishedKeys, otpVerifierUrl } = rest;
  const builtIn = environment === "development" && isBuiltIn(otpVerifierUrl, server);
  const value: AuthSettings = {
    database: database.value,
    issuer,
    clients,
    internalClient: { clientId: rest.internalClientId, clientSecret: rest.internalClientSecret },
    platformSecurityApiKey,
    signing: { privateKey, publicKey, keyId, publishedKeys },
    otp: { issuer: rest.otpIssuer, publicKey: rest.otpPublicKey, verifierUrl: otpVerifierUrl, builtIn },
    janitorIntervalSeconds,
  };
  return { value, problems };
}

function placeholdersOf(
  server: ServerSettings,
  generated: () => GeneratedSecrets,
): Readonly<Record<string, () => string>> {
  return {
    "http://HOST:SERVER_PORT": () => originOf(server),
    "development clients": () => JSON.stringify(developmentClients),
    "generated API key": () => generated().apiKey,
    "generated private key": () => generated().signing.privateKey,
    "generated public key": () => generated().signing.publicKey,
    "generated key id": () => generated().signing.keyId,
    "generated OTP public key": () => generated().otp.publicKey,
  };
}

/** Whether a URL is that of the verifier built into this very server. */
function isBuiltIn(verifierUrl: string, server: ServerSettings): boolean {
  const url = new URL(verifierUrl);
  const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
  const isHere = isLoopback(url) || ["0.0.0.0", "[::]", urlHost(server.host)].includes(url.hostname);
  return isHere && port === server.port && `${url.pathname}/`.startsWith(`${builtInVerifierPath}/`);
}

function crossChecks(
  table: TableReading<typeof authTable>,
  server: ServerSettings,
): readonly SettingProblem[] {
  const { sound, isGiven, problem } = table;
  const problems: SettingProblem[] = [];
  if (sound.clients?.some(({ clientId }) => clientId === sound.internalClientId)) {
    problems.push(
      problem(authTable.internalClientId, "must not be the id of a client in OAUTH_SERVER_CLIENTS"),
    );
  }
  const signing = [authTable.privateKey, authTable.publicKey, authTable.keyId];
  const absent = signing.filter((row) => !isGiven(row));
  if (server.environment === "development" && absent.length > 0 && absent.length < signing.length) {
    const [given] = signing.filter(isGiven);
    problems.push(...absent.map((row) => problem(row, `is missing, but ${given?.name} is set`)));
  } else if (sound.privateKey && sound.publicKey && !isKeyPair(sound.privateKey, sound.publicKey)) {
    problems.push(problem(authTable.publicKey, "does not belong to RSA_PRIVATE_KEY"));
  }
  if (sound.publishedKeys?.some(({ kid }) => kid === sound.keyId)) {
    problems.push(problem(authTable.keyId, "must not be the kid of a key in RSA_PUBLISHED_KEYS"));
  }
  if (
    server.environment === "production" &&
    sound.otpVerifierUrl &&
    isBuiltIn(sound.otpVerifierUrl, server)
  ) {
    problems.push(problem(authTable.otpVerifierUrl, "must not be the verifier of development mode"));
  }
  return problems;
}
