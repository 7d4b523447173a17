/** Settings of the auth service. A variable with the prefix `AUTH_` overrides the one without it. */
import { urlHost } from "../platform/base/addresses.ts";
import { resolveCacheSettings } from "../platform/cache/cache-settings.ts";
import { resolveDatabaseSettings } from "../platform/database/settings.ts";
import { resolveBrokerSettings } from "../platform/messaging/broker-settings.ts";
import type { EnvironmentVariables } from "../platform/settings/environment.ts";
import { expectationOf } from "../platform/settings/kinds.ts";
import { originOf, type ServerSettings } from "../platform/settings/server.ts";
import {
  resolveSettings,
  type SettingProblem,
  servicePrefix,
  type TableReading,
} from "../platform/settings/settings.ts";
import { isLoopback } from "../platform/settings/urls.ts";
import { developmentClients, isPublic } from "./client-settings.ts";
import { codesProblems, codesSettings } from "./codes-settings.ts";
import { isKeyPair } from "./key-settings.ts";
import { authTable, builtInVerifierPath } from "./settings-table.ts";

export type { ClientRegistration, GrantType } from "./client-settings.ts";

/** Settings of the auth service. Keys are PEM texts; they are checked to be safe, and the pair to match. */
export type AuthSettings = Exclude<ReturnType<typeof resolveAuthSettings>["value"], undefined>;

/** Values that development mode generates for settings that are not set. Keys are PEM texts: PKCS #8, SPKI. */
export interface GeneratedSecrets {
  readonly signing: { readonly keyId: string; readonly privateKey: string; readonly publicKey: string };
  readonly otp: { readonly publicKey: string };
  readonly apiKey: string;
}

/**
 * Reads the auth service's settings, including those of its database. Problems are returned, not thrown.
 * @param generated called in development only, and only for settings that are not set; may throw a SettingsError
 */
export function resolveAuthSettings(
  env: EnvironmentVariables,
  server: ServerSettings,
  generated: () => GeneratedSecrets,
) {
  const { environment, dataDir } = server;
  const database = resolveDatabaseSettings(env, { environment, dataDir, service: "auth" });
  const placeholders = placeholdersOf(server, generated);
  const prefix = servicePrefix("auth");
  const broker = resolveBrokerSettings(env, { environment, prefix });
  const cache = resolveCacheSettings(env, { environment, prefix });
  const table = resolveSettings(authTable, env, { environment, prefix, placeholders });
  const problems = [
    ...database.problems,
    ...broker.problems,
    ...cache.problems,
    ...table.problems,
    ...crossChecks(table, server),
    ...codesProblems(table, environment),
  ];
  const settings = table.value;
  if (database.value === undefined || settings === undefined) return { value: undefined, problems };
  const verifierUrl = settings.OTP_VERIFIER_URL;
  const value = {
    database: database.value,
    /** Undefined: events stay inside the process. */
    broker: broker.value,
    /** Undefined: attempts are counted in the database. */
    cache: cache.value,
    /** The `iss` of tokens; without a trailing slash. */
    issuer: settings.OAUTH_SERVER_ISSUER,
    clients: settings.OAUTH_SERVER_CLIENTS,
    /** Orders lists of clients; undefined: this one is lower than any with a revision. */
    clientsRevision: settings.OAUTH_SERVER_CLIENTS_REVISION,
    /** `typ` of issued access tokens. */
    accessTokenType: settings.ACCESS_TOKEN_TYPE,
    /** Its id is not that of a registered client. */
    internalClient: {
      clientId: settings.INTERNAL_CLIENT_ID,
      /** One, or two while one replaces the other. */
      clientSecrets: settings.INTERNAL_CLIENT_SECRET,
    },
    /** None: no API key is accepted. */
    platformSecurityApiKeys: settings.PLATFORM_SECURITY_API_KEY ?? [],
    signing: {
      privateKey: settings.RSA_PRIVATE_KEY,
      publicKey: settings.RSA_PUBLIC_KEY,
      /** `kid`; differs from those of the published keys. */
      keyId: settings.RSA_KEY_ID,
      /** In addition to the signing key. */
      publishedKeys: settings.RSA_PUBLISHED_KEYS,
    },
    otp: {
      issuer: settings.OTP_VERIFICATION_TOKEN_ISSUER,
      /** Undefined: a proof must not name an audience. */
      audience: settings.OTP_VERIFICATION_TOKEN_AUDIENCE,
      /** Empty only where no client has the grant phone_otp_token. */
      publicKeys: settings.OTP_VERIFICATION_TOKEN_PUBLIC_KEY ?? [],
      /** Greatest age of a proof, in seconds. */
      maxSeconds: settings.OTP_VERIFICATION_TOKEN_MAX_SECONDS,
      /** Without a trailing slash. Defined if a client has the grant phone_otp. */
      verifierUrl,
      /** Whether `verifierUrl` is that of the verifier built into this server; never in production. */
      builtIn: environment === "development" && verifierUrl !== undefined && isBuiltIn(verifierUrl, server),
    },
    /** Undefined: this service sends no codes. */
    codes: codesSettings(settings, environment),
    /** Clients without a secret; undefined: they are not served. */
    firstPartyApps:
      settings.FIRST_PARTY_APPS === "on"
        ? { issuers: issuersOf(settings.OAUTH_SERVER_ISSUER, environment === "development") }
        : undefined,
    janitorIntervalSeconds: settings.JANITOR_INTERVAL_SECONDS,
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

/** The issuer, and in development the same at localhost: what the proof of an app's key may be meant for. */
function issuersOf(issuer: string, isDevelopment: boolean): string[] {
  const local = issuer.replace(/^(https?:\/\/)(127\.0\.0\.1|\[::1\])(?=[:/])/, "$1localhost");
  return isDevelopment && local !== issuer ? [issuer, local] : [issuer];
}

/** Whether a URL is that of the verifier built into this server. */
function isBuiltIn(verifierUrl: string, server: ServerSettings): boolean {
  const url = new URL(verifierUrl);
  const port = Number(url.port || (url.protocol === "https:" ? 443 : 80));
  const isHere = isLoopback(url) || ["0.0.0.0", "[::]", urlHost(server.host)].includes(url.hostname);
  return isHere && port === server.port && `${url.pathname}/`.startsWith(`${builtInVerifierPath}/`);
}

/** Settings that production needs if a client has the grant. */
const neededByGrants = [
  ["phone_otp", "OTP_VERIFIER_URL"],
  ["phone_otp_token", "OTP_VERIFICATION_TOKEN_PUBLIC_KEY"],
] as const;

const signingNames = ["RSA_PRIVATE_KEY", "RSA_PUBLIC_KEY", "RSA_KEY_ID"] as const;

function crossChecks(
  { valid, isGiven, problem }: TableReading<typeof authTable>,
  server: ServerSettings,
): readonly SettingProblem[] {
  const isProduction = server.environment === "production";
  const problems: SettingProblem[] = [];
  if (valid.OAUTH_SERVER_CLIENTS?.some(({ clientId }) => clientId === valid.INTERNAL_CLIENT_ID)) {
    problems.push(problem("INTERNAL_CLIENT_ID", "must not be the id of a client in OAUTH_SERVER_CLIENTS"));
  }
  const ofClients = new Set(valid.OAUTH_SERVER_CLIENTS?.flatMap(({ clientSecrets }) => clientSecrets));
  if (isProduction && valid.INTERNAL_CLIENT_SECRET?.some((secret) => ofClients.has(secret))) {
    problems.push(
      problem("INTERNAL_CLIENT_SECRET", "must not be the secret of a client in OAUTH_SERVER_CLIENTS"),
    );
  }
  const { RSA_PRIVATE_KEY: privateKey, RSA_PUBLIC_KEY: publicKey, OTP_VERIFIER_URL: verifierUrl } = valid;
  const given = signingNames.find(isGiven);
  const absent = signingNames.filter((name) => !isGiven(name));
  if (!isProduction && given !== undefined && absent.length > 0) {
    problems.push(...absent.map((name) => problem(name, `is missing, but ${given} is set`)));
  } else if (privateKey && publicKey && !isKeyPair(privateKey, publicKey)) {
    problems.push(problem("RSA_PUBLIC_KEY", "does not belong to RSA_PRIVATE_KEY"));
  }
  if (valid.RSA_PUBLISHED_KEYS?.some(({ kid }) => kid === valid.RSA_KEY_ID)) {
    problems.push(problem("RSA_KEY_ID", "must not be the kid of a key in RSA_PUBLISHED_KEYS"));
  }
  const app = valid.OAUTH_SERVER_CLIENTS?.find(isPublic);
  const reason = app
    ? `${app.clientId} has the method none`
    : isGiven("OTP_VERIFIER") && "OTP_VERIFIER is set";
  if (reason && valid.FIRST_PARTY_APPS !== "on") {
    problems.push(problem("FIRST_PARTY_APPS", `must be on, as ${reason}`));
  }
  if (valid.FIRST_PARTY_APPS === "on" && valid.OTP_VERIFIER === undefined) {
    problems.push(problem("OTP_VERIFIER", "is missing, but FIRST_PARTY_APPS is on; it must be builtin"));
  }
  for (const [grant, name] of neededByGrants) {
    const client = valid.OAUTH_SERVER_CLIENTS?.find(({ grantTypes }) => grantTypes.includes(grant));
    if (!isProduction || !client || isGiven(name)) continue;
    const expected = expectationOf(authTable[name].kind);
    problems.push(
      problem(name, `is missing, but ${client.clientId} has the grant ${grant}; it must be ${expected}`),
    );
  }
  if (isProduction && verifierUrl && isBuiltIn(verifierUrl, server)) {
    problems.push(problem("OTP_VERIFIER_URL", "must not be the verifier of development mode"));
  }
  return problems;
}
