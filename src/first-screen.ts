/**
 * What development mode says to the person who started it: before the first start's long step, and once it is
 * ready, where everything is, with what to sign in, and what to try. The commands can be pasted as they are.
 */
import { randomBytes, randomInt } from "node:crypto";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { developmentClients, developmentInternalClient } from "./auth/client-settings.ts";
import { urlHost } from "./platform/addresses.ts";
import { developmentSecretsFile, generatedPrefix } from "./platform/development-secrets.ts";
import type { RunningServer, Settings } from "./server.ts";

interface Credentials {
  readonly clientId: string;
  readonly clientSecret: string;
}

/** Said before the embedded database is created, which takes long enough to wonder; otherwise empty. */
export function firstWords({ auth: { database } }: Settings): string {
  if (database.kind !== "embedded" || existsSync(join(database.dataDir, "PG_VERSION"))) return "";
  return `\n  Creating an embedded PostgreSQL in ${database.dataDir}. This takes some seconds, once.\n`;
}

/** Said once the server is ready. */
export function firstScreen(settings: Settings, running: RunningServer): string {
  const { server, auth } = settings;
  const { ports, database } = running;
  const host = urlHost(server.host);
  const http = `${server.tls ? "https" : "http"}://${host}:${ports.http}`;
  const clients = [
    { ...auth.internalClient, what: "identities, introspection, revocation" },
    ...auth.clients.map(({ clientId, clientSecret, grantTypes }) => ({
      clientId,
      clientSecret,
      what: grantTypes.length === 5 ? "all five grants" : grantTypes.join(", "),
    })),
  ];
  const credentials = clients.map(({ what, ...client }) => {
    const secret = isKnown(client) ? client.clientSecret : "(as you set it)";
    return `    ${client.clientId.padEnd(12)} ${secret.padEnd(24)} ${what}`;
  });
  if (auth.platformSecurityApiKey?.startsWith(generatedPrefix)) {
    const file = join(server.dataDir, developmentSecretsFile);
    credentials.push(`    X-Api-Key    (apiKey in ${file})  introspection`);
  }
  return `
  gatepost is ready (development mode, ${database})

    Auth API         ${http}/api/auth
    API reference    ${http}/api/auth/docs
    gRPC             ${host}:${ports.grpc}   (reflection and health are on)
    Health, metrics  http://${host}:${ports.management}/health/ready   /metrics
${auth.otp.builtIn ? `    OTP verifier     ${auth.otp.verifierUrl}   (shows its codes below)\n` : ""}
  Development credentials
${credentials.join("\n")}

  Try it, in another terminal:
${toTry(settings, http, `${host}:${ports.grpc}`)}

  Stop it with Ctrl+C. What it keeps is in ${resolve(server.dataDir)}.

`;
}

/** Secrets that somebody set are theirs; only those that everybody knows are shown. */
function isKnown({ clientSecret }: Credentials): boolean {
  return [developmentInternalClient, ...developmentClients].some(
    (client) => client.clientSecret === clientSecret,
  );
}

/** The demo, and a user and their tokens by hand. The user is another one each time, so that it works each time. */
function toTry({ auth }: Settings, http: string, grpc: string): string {
  const id = `u-${randomBytes(3).toString("hex")}`;
  const phone = `+1${randomInt(201, 990)}555${String(randomInt(10_000)).padStart(4, "0")}`;
  const lines: string[] = [];
  const isElsewhere = http !== "http://127.0.0.1:8080" || grpc !== "127.0.0.1:9090";
  if (auth.otp.builtIn) {
    lines.push(`${isElsewhere ? `GATEPOST_URL=${http} GATEPOST_GRPC=${grpc} ` : ""}npm run demo`);
  }
  lines.push(
    `curl -u ${userOf(auth.internalClient)} ${http}/api/auth/v1/identities \\`,
    `  -H 'content-type: application/json' -d '{"id":"${id}","phone":"${phone}"}'`,
  );
  const client = auth.clients.find(({ grantTypes }) => grantTypes.includes("auth"));
  if (client) {
    lines.push(
      `curl -u ${userOf(client)} ${http}/api/auth/oauth2/v1/tokens \\`,
      `  -d grant_type=auth -d auth_id=${id}`,
    );
  }
  return lines.map((line) => `    ${line}`).join("\n");
}

/** For `curl -u`, which asks for a secret that is not there. */
function userOf(client: Credentials): string {
  return isKnown(client) ? `${client.clientId}:${client.clientSecret}` : client.clientId;
}
