/** The texts of development mode: a notice before a database is created, and what is printed once all is ready. */
import { randomBytes, randomInt } from "node:crypto";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { developmentSecrets } from "./auth/client-settings.ts";
import type { AuthSettings } from "./auth/settings.ts";
import { developmentSecretsFile } from "./development/secrets.ts";
import { urlHost } from "./platform/base/addresses.ts";
import { generatedPrefix } from "./platform/settings/kinds.ts";
import type { PushSettings } from "./push/settings.ts";
import type { RunningServer } from "./server.ts";
import type { Settings } from "./services.ts";

interface Credentials {
  readonly clientId: string;
  readonly clientSecret: string;
}

/** A server that is ready. */
type Shown = Pick<RunningServer, "settings" | "ports" | "database">;

type ListedCredentials = AuthSettings["internalClient"];

/** The notice before the embedded database is created, which takes some seconds; empty if it exists or is not used. */
export function creationNotice({ auth, push }: Settings): string {
  const embedded = [auth?.database, push?.database].find((database) => database?.kind === "embedded");
  if (!embedded || existsSync(join(embedded.dataDir, "PG_VERSION"))) return "";
  return `\n  Creating an embedded PostgreSQL in ${embedded.dataDir}. This takes some seconds, once.\n`;
}

export function firstScreen({ settings, ports, database }: Shown): string {
  const { server, auth, push } = settings;
  const host = urlHost(server.host);
  const http = `${server.tls ? "https" : "http"}://${host}:${ports.http}`;
  const verifier = `    OTP verifier     ${auth?.otp.verifierUrl}   (shows its codes below)\n`;
  const sender = auth?.codes?.sender.kind;
  const codes = sender && `    Codes of apps    ${codesGo[sender]}\n`;
  return `
  gatepost is ready (development mode, ${database})

${auth ? apiLines("Auth", `${http}/api/auth`) : ""}${push ? apiLines("Push", `${http}/api/push-orchestration`) : ""}\
    gRPC             ${host}:${ports.grpc}   (reflection and health are on)
    Health, metrics  http://${host}:${ports.management}/health/ready   /metrics
${auth?.otp.builtIn ? verifier : ""}${codes ?? ""}${push ? pushLines(push) : ""}${auth ? credentialsOf(auth, server.dataDir) : ""}
  Try it, in another terminal:
${commandsToTry(settings, http, `${host}:${ports.grpc}`)}

  LOGGING_LEVEL=debug logs each request. Stop it with Ctrl+C. What it keeps is in ${resolve(server.dataDir)}.

`;
}

const codesGo = {
  log: "shown below, in place of text messages",
  webhook: "posted to OTP_WEBHOOK_URL",
  twilio: "sent by Twilio",
};

function apiLines(name: string, base: string): string {
  return `    ${`${name} API`.padEnd(16)} ${base}\n    ${`${name} reference`.padEnd(16)} ${base}/docs\n`;
}

/** The push providers, and the issuer whose tokens are accepted. */
function pushLines({ providers, issuer }: PushSettings): string {
  const { names, outboxFile } = providers;
  const file =
    outboxFile === undefined ? "" : `    Outbox           ${outboxFile}   (what would have been pushed)\n`;
  return `    Push providers   ${names.join(", ")}\n${file}    Token issuer     ${issuer}\n`;
}

function credentialsOf(auth: AuthSettings, dataDir: string): string {
  const clients = [
    { ...credentials(auth.internalClient), what: "identities, introspection, revocation" },
    ...auth.clients.map(({ grantTypes, clientSettings, ...client }) => ({
      ...credentials(client),
      what: [
        ...(grantTypes.length === 5 ? ["all five grants"] : grantTypes),
        ...(clientSettings.mayIntrospect ? ["introspection"] : []),
      ].join(", "),
    })),
  ];
  const lines = clients.map(({ what, ...client }) => {
    const shown = isKnown(client) ? client.clientSecret : "(as you set it)";
    const secret = client.clientSecret === "" ? "(no secret)" : shown;
    return `    ${client.clientId.padEnd(12)} ${secret.padEnd(24)} ${what}`;
  });
  if (auth.platformSecurityApiKeys.some((key) => key.startsWith(generatedPrefix))) {
    lines.push(`    X-Api-Key    (apiKey in ${join(dataDir, developmentSecretsFile)})  introspection`);
  }
  return `\n  Development credentials\n${lines.join("\n")}\n`;
}

function credentials({ clientId, clientSecrets: [clientSecret = ""] }: ListedCredentials): Credentials {
  return { clientId, clientSecret };
}

/** Whether the secret is a public default of development mode. Only those are shown. */
function isKnown({ clientSecret }: Credentials): boolean {
  return developmentSecrets.has(clientSecret);
}

/** The demo, and commands that create a user (a new one each time), tokens and a device. */
function commandsToTry({ auth, push }: Settings, http: string, grpc: string): string {
  const id = `u-${randomBytes(3).toString("hex")}`;
  const isElsewhere = http !== "http://127.0.0.1:8080" || grpc !== "127.0.0.1:9090";
  const demo = `${isElsewhere ? `GATEPOST_URL=${http} GATEPOST_GRPC=${grpc} ` : ""}npm run demo`;
  const signingIn = auth && tokenCommand(auth, http, id);
  const lines = [
    ...(auth?.otp.builtIn && push ? [demo] : []),
    ...(auth ? identityCommand(auth, http, id) : []),
    ...(signingIn ?? []),
    ...(push ? deviceCommand(http, signingIn) : []),
  ];
  return lines.map((line) => `    ${line}`).join("\n");
}

function identityCommand(auth: AuthSettings, http: string, id: string): string[] {
  const phone = `+1${randomInt(201, 990)}555${String(randomInt(10_000)).padStart(4, "0")}`;
  return [
    `curl -u ${userOf(credentials(auth.internalClient))} ${http}/api/auth/v1/identities \\`,
    `  -H 'content-type: application/json' -d '{"id":"${id}","phone":"${phone}"}'`,
  ];
}

function tokenCommand({ clients }: AuthSettings, http: string, id: string): string[] | undefined {
  const client = clients.find(({ grantTypes }) => grantTypes.includes("auth"));
  return (
    client && [
      `curl -u ${userOf(credentials(client))} ${http}/api/auth/oauth2/v1/tokens \\`,
      `  -d grant_type=auth -d auth_id=${id}`,
    ]
  );
}

/** @param signingIn the command that returns an access token; without it, the reader must have one */
function deviceCommand(http: string, signingIn: readonly string[] | undefined): string[] {
  const [first = "", ...rest] = signingIn ?? [];
  const token = signingIn
    ? [
        `token=$(${first.replace("curl ", "curl -s ")}`,
        ...rest.map((line) => `${line} | sed 's/.*"access_token":"\\([^"]*\\)".*/\\1/')`),
      ]
    : [];
  const expiration = new Date(Date.now() + 30 * 24 * 60 * 60 * 1000).toISOString();
  return [
    ...token,
    `curl -i ${http}/api/push-orchestration/v1/pushprovider/token -H "authorization: Bearer $token" \\`,
    `  -H 'content-type: application/json' -d '{"token":"my-phone","expiration":"${expiration}"}'`,
  ];
}

/** The user of `curl -u`, which prompts for a missing secret. */
function userOf(client: Credentials): string {
  return isKnown(client) ? `${client.clientId}:${client.clientSecret}` : client.clientId;
}
