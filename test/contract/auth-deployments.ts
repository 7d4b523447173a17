/** Three servers that are told apart by their database: one that is healthy, one that is broken, one that is away. */
import { generateKeyPairSync } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PGlite } from "@electric-sql/pglite";
import { type AuthApi, authApi } from "../support/auth-api.ts";
import { withClients } from "../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../support/auth-server.ts";
import type { Contract } from "../support/contract-check.ts";
import { copyEmbeddedDatabase } from "../support/embedded-template.ts";
import { appClient } from "../support/public-app.ts";
import { generousLimits } from "../support/sent-code.ts";
import type { Deployment } from "./status-cases.ts";

/** A client whose users may see and end their authorizations. */
export const sessionsClient = {
  clientId: "sessions-app",
  clientSecret: "sessions-app-secret",
  grantTypes: ["auth"],
  scopes: ["sessions"],
};

/** Whether an identity has the id of a client with client_credentials is looked up at the start, in a table that is lost here. */
const backoffice = {
  clientId: "backoffice",
  clientSecret: "backoffice-dev-secret",
  grantTypes: ["password", "refresh_token"],
  scopes: ["notifications:send"],
};

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
    ...withClients(sessionsClient, appClient("app"), backoffice),
    ...generousLimits,
    // However slow the machine is, a second code at once is one too many.
    OTP_RESEND_SECONDS: "60",
  };
}

/** A database that says it is migrated and is not what the program expects. */
async function breakDatabase(dataDir: string): Promise<void> {
  await copyEmbeddedDatabase(dataDir);
  const database = await PGlite.create({ dataDir });
  for (const table of ["identities", "authorizations", "organization_endings", "revoked_access_tokens"]) {
    await database.exec(`alter table auth.${table} rename to lost_${table}`);
  }
  await database.close();
}

/** @param contract that the responses of all three are held against */
export async function startDeployments(contract: Contract): Promise<Deployments> {
  const env = sharedSettings();
  await using cleanup = new AsyncDisposableStack();
  const brokenData = mkdtempSync(join(tmpdir(), "gatepost-broken-"));
  cleanup.defer(() => rmSync(brokenData, { recursive: true, force: true }));
  await breakDatabase(join(brokenData, "database"));
  const started = new Map<Deployment, AuthServer>();
  async function start(name: Deployment, ...server: Parameters<typeof startAuthServer>): Promise<void> {
    const running = await startAuthServer(...server);
    cleanup.defer(() => running.stop());
    started.set(name, running);
  }
  await start("healthy", "PGlite", { env });
  await start("broken", "PGlite", { env: { ...env, DATA_DIR: brokenData } });
  // Nothing listens at port 1. What each request meets of an outage is logged at level debug.
  const away = { ...env, DB_HOST: "127.0.0.1", DB_PORT: "1", LOGGING_LEVEL: "debug" };
  await start("away", "PostgreSQL", { env: away, waitUntilReady: false });

  const apis = new Map([...started].map(([name, { base }]) => [name, authApi(base, contract)]));
  const of = <T>(map: ReadonlyMap<Deployment, T>, deployment: Deployment): T => {
    const found = map.get(deployment);
    if (!found) throw new Error(`there is no ${deployment} server`);
    return found;
  };
  const all = cleanup.move();
  return {
    api: (deployment) => of(apis, deployment),
    logs: (deployment) => of(started, deployment).logs(),
    stop: () => all.disposeAsync(),
  };
}
