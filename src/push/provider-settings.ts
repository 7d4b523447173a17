/**
 * Settings of the push providers: which are used, where they are reached, and the credentials that each of
 * them asks for. Nothing here reads `process.env`.
 */
import { join } from "node:path";
import type { EnvironmentVariables } from "../platform/settings/environment.ts";
import {
  baseUrl,
  type Environment,
  listOf,
  matching,
  oneOf,
  origin,
  type SettingKind,
  stricterInProduction,
} from "../platform/settings/kinds.ts";
import {
  type Reading,
  resolveSettings,
  type Setting,
  type SettingProblem,
  type SettingsTable,
  type TableReading,
} from "../platform/settings/settings.ts";
import {
  apnsKey,
  type ServiceAccount,
  secure,
  serviceAccount,
  vapidPrivateKey,
  vapidPublicKey,
  vapidPublicOf,
} from "./provider-key-settings.ts";

export type { ServiceAccount } from "./provider-key-settings.ts";

/** The providers that a device can be reached through; `outbox` only writes a file, in development. */
export const providerNames = ["fcm", "apns", "webpush", "outbox"] as const;
export type ProviderName = (typeof providerNames)[number];

export interface FcmSettings {
  /** An origin, as in `https://fcm.googleapis.com`. */
  readonly endpoint: string;
  readonly account: ServiceAccount;
}

export interface ApnsSettings {
  /** An origin, as in `https://api.push.apple.com`. */
  readonly endpoint: string;
  /** PEM, EC P-256. */
  readonly key: string;
  readonly keyId: string;
  readonly teamId: string;
  /** The bundle id of the app. */
  readonly topic: string;
}

export interface WebPushSettings {
  /** P-256, base64url: 32 bytes, and the uncompressed point of 65. They belong together. */
  readonly vapidPrivateKey: string;
  readonly vapidPublicKey: string;
  /** Whom a push service can turn to: `mailto:` or `https:`. */
  readonly subject: string;
  /** Hosts, `*.suffix` for those below one; in development also whole http origins. */
  readonly allowedHosts: readonly string[];
}

export interface ProviderSettings {
  /** Those in use, without repetitions. The first is that of devices which name none. */
  readonly names: readonly [ProviderName, ...ProviderName[]];
  /** Of those that are in use. */
  readonly fcm: FcmSettings | undefined;
  readonly apns: ApnsSettings | undefined;
  readonly webpush: WebPushSettings | undefined;
  /** The outbox's file. */
  readonly outboxFile: string | undefined;
  /** Without a trailing slash. Undefined: providers are not told of images. */
  readonly imageBaseUrl: string | undefined;
}

const names = stricterInProduction(
  listOf(
    oneOf(providerNames),
    `a comma-separated list of ${providerNames.join(", ")}; the first is the default`,
  ),
  (list) => (list.includes("outbox") ? "must not list outbox in production: it sends nothing" : undefined),
);

const appleId = matching("10 capital letters and digits", /^[A-Z0-9]{10}$/);

const hostForm = /^(?:\*\.)?[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+$/;

/** The last label of a name is never a number: that would be an IP address (WHATWG URL, "ends in a number"). */
const allowedHost: SettingKind<string> = {
  expects: "a host such as push.example.com, or *.example.com for all below it",
  quotable: true,
  parse: (entry, environment) => {
    if (hostForm.test(entry) && !/\.(?:\d+|0x[0-9a-f]*)$/.test(entry)) return { value: entry };
    const isOrigin = environment === "development" && "value" in origin.parse(entry, environment);
    return isOrigin ? { value: entry } : { problems: [`must be ${allowedHost.expects}`] };
  },
};

/** The settings of the providers, row by row. */
export const providerTable = {
  names: {
    name: "PUSH_PROVIDERS",
    description: "The push providers in use; what each of them asks for must be set.",
    kind: names,
    development: "outbox",
    required: true,
    example: "PUSH_PROVIDERS=fcm,apns,webpush",
  },
  imageBaseUrl: {
    name: "PUSH_IMAGE_BASE_URL",
    description: "Where devices fetch the images of notifications; without it they get none.",
    kind: secure(baseUrl),
    example: "PUSH_IMAGE_BASE_URL=https://images.example.com/push",
  },
  fcmEndpoint: {
    name: "FCM_ENDPOINT",
    description: "Where FCM is reached, over HTTP/2.",
    kind: secure(origin),
    default: "https://fcm.googleapis.com",
    example: "FCM_ENDPOINT=https://fcm.googleapis.com",
  },
  fcmCredentials: {
    name: "FCM_CREDENTIALS",
    description: "The service account that sends with FCM.",
    kind: serviceAccount,
    secret: true,
    example: "FCM_CREDENTIALS_FILE=/run/secrets/fcm-service-account.json",
  },
  apnsEndpoint: {
    name: "APNS_ENDPOINT",
    description: "Where APNs is reached, over HTTP/2.",
    kind: secure(origin),
    default: "https://api.push.apple.com",
    example: "APNS_ENDPOINT=https://api.push.apple.com",
  },
  apnsKey: {
    name: "APNS_KEY",
    description: "The key that authenticates to APNs.",
    kind: apnsKey,
    secret: true,
    example: "APNS_KEY_FILE=/run/secrets/apns-key.p8",
  },
  apnsKeyId: {
    name: "APNS_KEY_ID",
    description: "The id of APNS_KEY.",
    kind: appleId,
    example: "APNS_KEY_ID=ABC123DEFG",
  },
  apnsTeamId: {
    name: "APNS_TEAM_ID",
    description: "The id of the team that APNS_KEY belongs to.",
    kind: appleId,
    example: "APNS_TEAM_ID=DEF123GHIJ",
  },
  apnsTopic: {
    name: "APNS_TOPIC",
    description: "The bundle id of the app on Apple devices.",
    kind: matching("letters, digits, dots and hyphens", /^[A-Za-z0-9.-]{1,255}$/),
    example: "APNS_TOPIC=com.example.app",
  },
  vapidPrivateKey: {
    name: "WEBPUSH_VAPID_PRIVATE_KEY",
    description: "The key that identifies this server to Web Push services.",
    kind: vapidPrivateKey,
    secret: true,
    example: "WEBPUSH_VAPID_PRIVATE_KEY_FILE=/run/secrets/vapid-private-key",
  },
  vapidPublicKey: {
    name: "WEBPUSH_VAPID_PUBLIC_KEY",
    description: "The public half of WEBPUSH_VAPID_PRIVATE_KEY; browsers subscribe with it.",
    kind: vapidPublicKey,
    example: "WEBPUSH_VAPID_PUBLIC_KEY_FILE=/run/secrets/vapid-public-key",
  },
  webPushSubject: {
    name: "WEBPUSH_SUBJECT",
    description: "Whom a Web Push service can turn to.",
    kind: matching(
      "a mailto: or https: URL",
      /^(?:mailto:[\x21-\x7e]{1,200}@[A-Za-z0-9.-]{1,200}|https:\/\/[\x21-\x7e]{1,400})$/,
    ),
    example: "WEBPUSH_SUBJECT=mailto:push@example.com",
  },
  webPushAllowedHosts: {
    name: "WEBPUSH_ALLOWED_HOSTS",
    description: "The Web Push services that a device may name.",
    kind: listOf(allowedHost, "a comma-separated list of hosts; *.example.com stands for all below it"),
    default:
      "fcm.googleapis.com, updates.push.services.mozilla.com, web.push.apple.com, *.notify.windows.com",
    example: "WEBPUSH_ALLOWED_HOSTS=fcm.googleapis.com,web.push.apple.com",
  },
} as const satisfies SettingsTable;

/** The settings that a provider asks for. */
const needed: Readonly<Record<ProviderName, readonly (keyof typeof providerTable)[]>> = {
  fcm: ["fcmCredentials"],
  apns: ["apnsKey", "apnsKeyId", "apnsTeamId", "apnsTopic"],
  webpush: ["vapidPrivateKey", "vapidPublicKey", "webPushSubject"],
  outbox: [],
};

interface ProviderReadOptions {
  readonly environment: Environment;
  /** `DATA_DIR` of the server's settings; the outbox is kept there. */
  readonly dataDir: string;
  /** Of names that override the plain ones, as in "PUSH_". */
  readonly prefix: string;
}

/** Reads the settings of the providers and reports what is wrong instead of throwing it. */
export function resolveProviderSettings(
  env: EnvironmentVariables,
  { environment, dataDir, prefix }: ProviderReadOptions,
): Reading<ProviderSettings> {
  const table = resolveSettings(providerTable, env, { environment, prefix });
  const problems = [...table.problems, ...crossChecks(table)];
  const [first, ...others] = table.value?.names ?? [];
  if (table.value === undefined || first === undefined) return { value: undefined, problems };
  const { value } = table;
  const isListed = (name: ProviderName): boolean => name === first || others.includes(name);
  return {
    value: {
      names: [first, ...others],
      fcm: isListed("fcm") ? fcmOf(value) : undefined,
      apns: isListed("apns") ? apnsOf(value) : undefined,
      webpush: isListed("webpush") ? webPushOf(value) : undefined,
      outboxFile: isListed("outbox") ? join(dataDir, "outbox.ndjson") : undefined,
      imageBaseUrl: value.imageBaseUrl,
    },
    problems,
  };
}

function crossChecks(table: TableReading<typeof providerTable>): readonly SettingProblem[] {
  const { sound, isGiven, problem } = table;
  const missing = (sound.names ?? []).flatMap((name) => {
    const rows: readonly Setting<unknown>[] = needed[name].map((key) => providerTable[key]);
    return rows
      .filter((row) => !isGiven(row))
      .map((row) =>
        problem(row, `is missing, but PUSH_PROVIDERS lists ${name}; it must be ${row.kind.expects}`),
      );
  });
  const { vapidPrivateKey: key, vapidPublicKey: point } = sound;
  if (key === undefined || point === undefined || vapidPublicOf(key) === point) return missing;
  return [...missing, problem(providerTable.vapidPublicKey, "does not belong to WEBPUSH_VAPID_PRIVATE_KEY")];
}

type Values = Exclude<TableReading<typeof providerTable>["value"], undefined>;

function fcmOf({ fcmEndpoint: endpoint, fcmCredentials: account }: Values): FcmSettings | undefined {
  return account && { endpoint, account };
}

function apnsOf(values: Values): ApnsSettings | undefined {
  const { apnsEndpoint: endpoint, apnsKey: key, apnsKeyId: keyId, apnsTeamId: teamId, apnsTopic } = values;
  if (key === undefined || keyId === undefined || teamId === undefined || apnsTopic === undefined) {
    return undefined;
  }
  return { endpoint, key, keyId, teamId, topic: apnsTopic };
}

function webPushOf(values: Values): WebPushSettings | undefined {
  const { vapidPrivateKey: key, vapidPublicKey: point, webPushSubject: subject } = values;
  if (key === undefined || point === undefined || subject === undefined) return undefined;
  return {
    vapidPrivateKey: key,
    vapidPublicKey: point,
    subject,
    allowedHosts: values.webPushAllowedHosts,
  };
}
