/** The environment of an auth server in production mode, for programs that measure it or try its patience. */
import { generateKeyPairSync, randomBytes } from "node:crypto";
import type { TestDatabase } from "./backends.ts";

const publicKeyEncoding = { type: "spki", format: "pem" } as const;
const privateKeyEncoding = { type: "pkcs8", format: "pem" } as const;

export interface SigningKey {
  /** PEM. */
  readonly privateKey: string;
  readonly publicKey: string;
  readonly keyId: string;
}

/** RSA, 2048 bits. */
export function newSigningKey(keyId: string): SigningKey {
  const pair = generateKeyPairSync("rsa", { modulusLength: 2048, publicKeyEncoding, privateKeyEncoding });
  return { ...pair, keyId };
}

interface Production {
  readonly database: Omit<TestDatabase, "drop">;
  /** As `OAUTH_SERVER_CLIENTS` has them. */
  readonly clients: readonly object[];
  readonly issuer: string;
  readonly signing: SigningKey;
}

/** Everything that production needs but the ports; the secret of the internal client is random. */
export function productionEnvironment({ database, clients, issuer, signing }: Production) {
  const otp = generateKeyPairSync("ec", { namedCurve: "P-256", publicKeyEncoding, privateKeyEncoding });
  return {
    NODE_ENV: "production",
    HOST: "127.0.0.1",
    LOGGING_LEVEL: "warn",
    DB_HOST: database.host,
    DB_PORT: String(database.port),
    DB_NAME: database.name,
    DB_USER: database.user,
    DB_PASSWORD: database.password,
    DB_SSL: "disable",
    OAUTH_SERVER_ISSUER: issuer,
    OAUTH_SERVER_CLIENTS: JSON.stringify(clients),
    INTERNAL_CLIENT_ID: "internal",
    INTERNAL_CLIENT_SECRET: randomBytes(24).toString("base64url"),
    RSA_PRIVATE_KEY: signing.privateKey,
    RSA_PUBLIC_KEY: signing.publicKey,
    RSA_KEY_ID: signing.keyId,
    OTP_VERIFICATION_TOKEN_PUBLIC_KEY: otp.publicKey,
    OTP_VERIFIER_URL: "http://127.0.0.1:1/otp",
  };
}
