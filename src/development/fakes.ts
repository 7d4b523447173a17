/** The program `npm run fakes`: fakes of the push providers on fixed ports, for development and staging. */
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { readArguments, refuseArguments } from "../command.ts";
import { createLogger } from "../platform/observability/logger.ts";
import { createLifecycle } from "../platform/process/lifecycle.ts";
import { type ProviderFakes, startProviderFakes } from "./provider-fakes/provider-fakes.ts";
import { loadCredentials, writeSecret } from "./provider-fakes/stored-credentials.ts";

const usage = `npm run fakes -- [options]

Starts fakes of FCM, APNs and Web Push: docs/push/provider-fakes.md.

  --control-port <port>   9300; always on loopback
  --fcm-port <port>       9301
  --apns-port <port>      9302
  --webpush-port <port>   9303
  --host <address>        where the three providers listen (127.0.0.1)
  --public-host <name>    what clients call that host, where it differs
  --cert <file>           TLS certificate (PEM) of the three, with --key; cleartext without
  --key <file>
  --data <directory>      where the credentials are kept (.data/fakes)

Exit codes: 0 stopped; 1 they cannot start; 2 wrong arguments.`;

interface Options {
  readonly ports: { control: number; fcm: number; apns: number; webpush: number };
  readonly host: string;
  readonly publicHost: string | undefined;
  readonly tls: { cert: string; key: string } | undefined;
  readonly data: string;
}

function readOptions(): Options {
  const { values } = readArguments({
    usage,
    options: {
      "control-port": { type: "string", default: "9300" },
      "fcm-port": { type: "string", default: "9301" },
      "apns-port": { type: "string", default: "9302" },
      "webpush-port": { type: "string", default: "9303" },
      host: { type: "string", default: "127.0.0.1" },
      "public-host": { type: "string" },
      cert: { type: "string" },
      key: { type: "string" },
      data: { type: "string", default: ".data/fakes" },
    },
  });
  const { cert, key } = values;
  if ((cert === undefined) !== (key === undefined)) refuseArguments("--cert and --key go together.");
  return {
    ports: {
      control: port("control-port", values["control-port"]),
      fcm: port("fcm-port", values["fcm-port"]),
      apns: port("apns-port", values["apns-port"]),
      webpush: port("webpush-port", values["webpush-port"]),
    },
    host: values.host,
    publicHost: values["public-host"],
    tls: cert && key ? { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") } : undefined,
    data: resolve(values.data),
  };
}

function port(name: string, text: string): number {
  const number = Number(text);
  if (/^\d+$/.test(text) && number <= 65_535) return number;
  return refuseArguments(`--${name} is a port, from 0 (any free one) to 65535.`);
}

/** Writes the files that a sender's settings refer to. Returns their paths. */
function writeFiles(directory: string, { fcm, apns, webpush }: ProviderFakes): Record<string, string> {
  const files = {
    serviceAccount: join(directory, "fcm-service-account.json"),
    apnsKey: join(directory, `AuthKey_${apns.credentials.keyId}.p8`),
    subscription: join(directory, "webpush-subscription.json"),
  };
  writeSecret(files.serviceAccount, `${JSON.stringify(fcm.credentials, null, 2)}\n`);
  writeSecret(files.apnsKey, apns.credentials.privateKey);
  writeSecret(files.subscription, `${JSON.stringify(webpush.subscribe("sample"), null, 2)}\n`);
  return files;
}

function startupText(fakes: ProviderFakes, files: Record<string, string>, data: string): string {
  const { fcm, apns, webpush, control } = fakes;
  return `
  The fakes of the push providers are ready

    FCM              ${fcm.origin}
    APNs             ${apns.origin}   (HTTP/2 only)
    Web Push         ${webpush.origin}
    Control          ${control.origin}   (ledger, failures)

  Point gatepost at them, in the terminal in which you start it:

export PUSH_PROVIDERS=fcm,apns,webpush
export FCM_ENDPOINT=${fcm.origin}
export FCM_CREDENTIALS_FILE=${quoted(files["serviceAccount"])}
export APNS_ENDPOINT=${apns.origin}
export APNS_KEY_FILE=${quoted(files["apnsKey"])}
export APNS_KEY_ID=${apns.credentials.keyId}
export APNS_TEAM_ID=${apns.credentials.teamId}
export APNS_TOPIC=${apns.credentials.topic}
export WEBPUSH_VAPID_PUBLIC_KEY=${webpush.credentials.publicKey}
export WEBPUSH_VAPID_PRIVATE_KEY=${webpush.credentials.privateKey}
export WEBPUSH_SUBJECT=${webpush.credentials.subject}
export WEBPUSH_ALLOWED_HOSTS=${webpush.origin}

  With NODE_ENV=production: --cert, --key, NODE_EXTRA_CA_CERTS, and others for WEBPUSH_ (docs/push/provider-fakes.md).

  Devices to register
    FCM              any token, such as device-1; unregistered-1 gets 404 UNREGISTERED
    APNs             64 hexadecimal digits; those that begin with dead0410 get 410 Unregistered
    Web Push         ${files["subscription"]}

  Try it, in another terminal
    curl ${control.origin}/ledger
    curl -X POST '${control.origin}/play?provider=fcm' -d '{"answer":"QUOTA_EXCEEDED","retryAfter":5,"times":10}'
    curl -X POST ${control.origin}/webpush/subscriptions

  More in docs/push/provider-fakes.md. Stop with Ctrl+C. What they keep is in ${data}.

`;
}

function quoted(path: string | undefined): string {
  return path !== undefined && /^[\w./-]+$/.test(path) ? path : `'${path?.replaceAll("'", `'\\''`)}'`;
}

async function main(): Promise<void> {
  const { ports, host, publicHost, tls, data } = readOptions();
  const logger = createLogger({ level: "warn", environment: "development" });
  const fakes = await startProviderFakes({
    ports,
    host,
    credentials: await loadCredentials(data),
    ...(publicHost !== undefined && { publicHost }),
    ...(tls && { tls }),
  });
  const lifecycle = createLifecycle({ logger, graceSeconds: 5 });
  lifecycle.add({ name: "fakes", stop: fakes.close });
  lifecycle.run();
  process.stdout.write(startupText(fakes, writeFiles(data, fakes), data));
}

try {
  await main();
} catch (error) {
  if (!(error instanceof Error && "code" in error)) throw error;
  process.stderr.write(`The fakes cannot start: ${error.message}\n`);
  process.exitCode = 1;
}
