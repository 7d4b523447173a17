/** Three servers that are told apart by their database: one that is sound, one that is broken, one that is away. */
import { generateKeyPairSync } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PGlite } from "@electric-sql/pglite";
import { type AuthApi, authApi } from "../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import type { Contract } from "../support/contract-check.ts";
import { copyEmbeddedDatabase } from "../support/embedded-template.ts";
import type { Deployment } from "./status-cases.ts";

export interface Deployments {
  api(deployment: Deployment): AuthApi;
  logs(deployment: Deployment): string;
  stop(): Promise<void>;
}

/** One key and one issuer, so that each server knows the tokens of the others. */
function sharedSettings(): Record<string, string> {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return {
    OAUTH_SERVER_ISSUER: "http://127.0.0.1/api/auth",
    RSA_PRIVATE_KEY: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    RSA_PUBLIC_KEY: publicKey.export({ type: "spki", format: "pem" }).toString(),
    RSA_KEY_ID: "shared",
  };
}

/** A database that says it is migrated and is not what the program expects. */
async function breakDatabase(dataDir: string): Promise<void> {
  await copyEmbeddedDatabase(dataDir);
  const database = await PGlite.create({ dataDir });
  for (const table of ["identities", "authorizations", "revoked_access_tokens"]) {
    await database.exec(`alter table auth.${table} rename to lost_${table}`);
  }
  await database.close();
}

/** @param contract that the responses of all three are held against */
export async function startDeployments(contract: Contract): Promise<Deployments> {
  const env = sharedSettings();
  const brokenData = mkdtempSync(join(tmpdir(), "gatepost-broken-"));
  await breakDatabase(join(brokenData, "auth"));
  const started = new Map<Deployment, AuthServer>();
  started.set("sound", await startAuthServer("PGlite", { env }));
  started.set("broken", await startAuthServer("PGlite", { env: { ...env, DATA_DIR: brokenData } }));
  // Nothing listens at port 1.
  const away = { ...env, DB_HOST: "127.0.0.1", DB_PORT: "1" };
  started.set("away", await startAuthServer("PostgreSQL", { env: away, waitUntilReady: false }));

  const apis = new Map([...started].map(([name, { base }]) => [name, authApi(base, contract)]));
  const of = <T>(map: ReadonlyMap<Deployment, T>, deployment: Deployment): T => {
    const found = map.get(deployment);
    if (!found) throw new Error(`there is no ${deployment} server`);
    return found;
  };
  return {
    api: (deployment) => of(apis, deployment),
    logs: (deployment) => of(started, deployment).logs(),
    async stop() {
      for (const server of started.values()) await server.stop();
      rmSync(brokenData, { recursive: true, force: true });
    },
  };
}
