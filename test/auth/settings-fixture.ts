import { generateKeyPairSync, type KeyObject, type KeyPairKeyObjectResult } from "node:crypto";
import { resolveAuthSettings } from "../../src/auth/settings.ts";
import { developmentSecrets } from "../../src/development/secrets.ts";
import type { EnvironmentVariables } from "../../src/platform/settings/environment.ts";
import { resolveServerSettings } from "../../src/platform/settings/server.ts";
import { joinReadings, valueOrThrow } from "../../src/platform/settings/settings.ts";

const pairs = new Map<string, KeyPairKeyObjectResult>();

/** A pair of RSA keys; the same for the same name, as generating one takes a while. */
export function rsaKeys(
  name = "other",
  modulusLength = 2048,
  publicExponent = 65_537,
): KeyPairKeyObjectResult {
  const key = `${name} ${modulusLength} ${publicExponent}`;
  const pair = pairs.get(key) ?? generateKeyPairSync("rsa", { modulusLength, publicExponent });
  pairs.set(key, pair);
  return pair;
}

/** PKCS #8 or SPKI. */
export function pemOf(key: KeyObject): string {
  const type = key.type === "private" ? "pkcs8" : "spki";
  return key.export({ type, format: "pem" }).toString();
}

/** A valid environment for production. */
export function productionEnv() {
  const { privateKey, publicKey } = rsaKeys("signing");
  return {
    NODE_ENV: "production",
    DB_HOST: "db.internal",
    DB_NAME: "gatepost",
    DB_USER: "gatepost",
    DB_PASSWORD: "a-database-password",
    OAUTH_SERVER_ISSUER: "https://auth.example.com/api/auth",
    OAUTH_SERVER_CLIENTS: '[{"clientId":"app","clientSecret":"a-long-enough-secret","grantTypes":["auth"]}]',
    INTERNAL_CLIENT_ID: "internal",
    INTERNAL_CLIENT_SECRET: "a-long-enough-internal-secret",
    RSA_PRIVATE_KEY: pemOf(privateKey),
    RSA_PUBLIC_KEY: pemOf(publicKey),
    RSA_KEY_ID: "2025-01",
    OTP_VERIFICATION_TOKEN_PUBLIC_KEY: pemOf(rsaKeys("otp").publicKey),
    OTP_VERIFIER_URL: "https://otp.internal",
  };
}

/** A valid environment for production, with these changes. */
export function production(changes: EnvironmentVariables = {}) {
  return { ...productionEnv(), ...changes };
}

/** The auth settings of an environment whose server settings are valid. */
export async function readAuth(env: EnvironmentVariables) {
  const server = valueOrThrow(resolveServerSettings(env));
  return valueOrThrow(resolveAuthSettings(env, server, () => developmentSecrets(server.dataDir)));
}

/** All settings, as the program reads them. */
export async function readAll(env: EnvironmentVariables) {
  const server = resolveServerSettings(env);
  const generated = () => developmentSecrets(server.value.dataDir);
  return joinReadings({ server, auth: resolveAuthSettings(env, server.value, generated) });
}
