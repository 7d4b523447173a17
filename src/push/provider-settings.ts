/** Settings of the push providers: which are in use, their endpoints, and the credentials of each. */
import { join } from "node:path";
import * as v from "valibot";
import type { EnvironmentVariables } from "../platform/settings/environment.ts";
import {
  checked,
  type Environment,
  expectationOf,
  listOf,
  matching,
  oneOf,
  parse,
  refusing,
  stricterInProduction,
} from "../platform/settings/kinds.ts";
import {
  resolveSettings,
  type SettingProblem,
  type SettingsTable,
  type SettingValues,
  type TableReading,
} from "../platform/settings/settings.ts";
import { baseUrl, isPrivate, origin, secure } from "../platform/settings/urls.ts";
import {
  apnsKey,
  projectId,
  type ServiceAccount,
  serviceAccount,
  vapidKeys,
  vapidPublicKey,
} from "./provider-key-settings.ts";

export type { ServiceAccount } from "./provider-key-settings.ts";

/** The names of the push providers. `outbox` only writes a file, in development. */
export const providerNames = ["fcm", "apns", "webpush", "outbox"] as const;
export type ProviderName = (typeof providerNames)[number];

const names = stricterInProduction(
  listOf(
    oneOf(providerNames),
    `a comma-separated list of ${providerNames.join(", ")}; the first is the default, and production refuses outbox`,
  ),
  (list) => (list.includes("outbox") ? "must not list outbox in production: it sends nothing" : undefined),
);

const appleId = matching("10 capital letters and digits", /^[A-Z0-9]{10}$/);

const hostPattern = /^(?:\*\.)?[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})+$/;

/** A host whose last label is a number is an IP address (WHATWG URL, "ends in a number"), so it is not allowed. */
const isAllowedHost = (entry: string): boolean =>
  hostPattern.test(entry) && !/\.(?:\d+|0x[0-9a-f]*)$/.test(entry);

/** Development also allows the origins of fakes. */
const allowedHosts = (environment: Environment) =>
  listOf(
    checked(
      "a host such as push.example.com, or *.example.com for all below it",
      (entry) =>
        isAllowedHost(entry) ||
        (environment === "development" && "value" in parse(origin, entry, environment)),
    ),
    "a comma-separated list of hosts; *.example.com stands for all below it",
  );

/** Names that are nobody's (RFC 6761, RFC 6762). */
const reservedName = /(?:^|\.)(?:example(?:\.(?:com|net|org))?|test|invalid|localhost|local)\.?$/;

const subject = stricterInProduction(
  matching(
    "a mailto: or https: URL",
    /^(?:mailto:[\x21-\x7e]{1,200}@[A-Za-z0-9.-]{1,200}|https:\/\/[\x21-\x7e]{1,400})$/,
  ),
  (text) => {
    const url = URL.parse(text.replace(/^mailto:.*@/, "https://"));
    return url !== null && !isPrivate(url) && !reservedName.test(url.hostname)
      ? undefined
      : "must name a public host, where you can be reached: Apple refuses others, as BadJwtToken";
  },
);

/** Short enough that every payload has room for an image, the longest title and a text. */
const imageBase = v.pipe(
  baseUrl,
  refusing((url) => (url.length > 500 ? "must not be longer than 500 characters" : undefined)),
);

/** The settings of the providers, row by row. */
export const providerTable = {
  PUSH_PROVIDERS: {
    description: "The push providers in use; the settings that each of them needs must be set.",
    kind: names,
    development: "outbox",
    required: true,
    example: "fcm,apns,webpush",
  },
  PUSH_IMAGE_BASE_URL: {
    description:
      "Where devices fetch the images of notifications, in at most 500 characters; without it they get none.",
    kind: secure(imageBase),
    example: "https://images.example.com/push",
  },
  FCM_ENDPOINT: {
    description: "Where FCM is reached, over HTTP/2.",
    kind: secure(origin),
    default: "https://fcm.googleapis.com",
  },
  FCM_CREDENTIALS: {
    description: "The service account that sends with FCM.",
    kind: serviceAccount,
    secret: true,
    exampleFile: "fcm-service-account.json",
  },
  FCM_PROJECT_ID: {
    description:
      "In place of FCM_CREDENTIALS: the project to send to with Google's application default credentials, which are workload identity or the metadata server's.",
    kind: projectId,
    example: "my-project",
  },
  APNS_ENDPOINT: {
    description: "Where APNs is reached, over HTTP/2.",
    kind: secure(origin),
    default: "https://api.push.apple.com",
  },
  APNS_KEY: {
    description: "The key that authenticates to APNs.",
    kind: apnsKey,
    secret: true,
    exampleFile: "apns-key.p8",
  },
  APNS_KEY_ID: { description: "The id of APNS_KEY.", kind: appleId, example: "ABC123DEFG" },
  APNS_TEAM_ID: {
    description: "The id of the team that APNS_KEY belongs to.",
    kind: appleId,
    example: "DEF123GHIJ",
  },
  APNS_TOPIC: {
    description: "The bundle id of the app on Apple devices.",
    kind: matching("letters, digits, dots and hyphens", /^[A-Za-z0-9.-]{1,255}$/),
    example: "com.example.app",
  },
  WEBPUSH_VAPID_PRIVATE_KEY: {
    description:
      "The key that identifies this server to Web Push services; what a service refuses with the first of two is sent with the second.",
    kind: vapidKeys,
    secret: true,
    exampleFile: "vapid-private-key",
  },
  WEBPUSH_VAPID_PUBLIC_KEY: {
    description:
      "The public half of WEBPUSH_VAPID_PRIVATE_KEY, of the first of two; browsers subscribe with it.",
    kind: vapidPublicKey,
    exampleFile: "vapid-public-key",
  },
  WEBPUSH_SUBJECT: {
    description: "The contact that Web Push services can turn to.",
    kind: subject,
    example: "mailto:push@your-domain.com",
  },
  WEBPUSH_ALLOWED_HOSTS: {
    description: "The Web Push services that a device may name.",
    kind: allowedHosts,
    default:
      "fcm.googleapis.com, jmt17.google.com, updates.push.services.mozilla.com, *.push.apple.com, *.notify.windows.com",
    example: "fcm.googleapis.com,web.push.apple.com",
  },
} as const satisfies SettingsTable;

type ProviderSetting = keyof typeof providerTable;

/** The settings that a provider needs. */
const needed: Readonly<Record<ProviderName, readonly ProviderSetting[]>> = {
  fcm: ["FCM_CREDENTIALS"],
  apns: ["APNS_KEY", "APNS_KEY_ID", "APNS_TEAM_ID", "APNS_TOPIC"],
  webpush: ["WEBPUSH_VAPID_PRIVATE_KEY", "WEBPUSH_VAPID_PUBLIC_KEY", "WEBPUSH_SUBJECT"],
  outbox: [],
};

interface ProviderReadOptions {
  readonly environment: Environment;
  /** `DATA_DIR` of the server's settings; the outbox provider's file is there. */
  readonly dataDir: string;
  /** Prefix of the names that override the plain ones, as in "PUSH_". */
  readonly prefix: string;
}

export type ProviderSettings = Exclude<ReturnType<typeof resolveProviderSettings>["value"], undefined>;

/** Reads the settings of the providers. Returns problems instead of throwing them. */
export function resolveProviderSettings(
  env: EnvironmentVariables,
  { environment, dataDir, prefix }: ProviderReadOptions,
) {
  const table = resolveSettings(providerTable, env, { environment, prefix });
  const problems = [...table.problems, ...crossChecks(table)];
  const settings = table.value;
  const [first, ...others] = settings?.PUSH_PROVIDERS ?? [];
  if (settings === undefined || first === undefined) return { value: undefined, problems };
  const isListed = (name: ProviderName): boolean => name === first || others.includes(name);
  const inUse: readonly [ProviderName, ...ProviderName[]] = [first, ...others];
  const value = {
    /** The providers in use, without repetitions. The first is the default for devices that name no provider. */
    names: inUse,
    /** Settings of each provider in use; undefined for the others. */
    fcm: isListed("fcm") ? fcmOf(settings) : undefined,
    apns: isListed("apns") ? apnsOf(settings) : undefined,
    webpush: isListed("webpush") ? webPushOf(settings) : undefined,
    /** The file of the outbox provider. */
    outboxFile: isListed("outbox") ? join(dataDir, "outbox.ndjson") : undefined,
    /** Without a trailing slash. Undefined: messages carry no images. */
    imageBaseUrl: settings.PUSH_IMAGE_BASE_URL,
  };
  return { value, problems };
}

function crossChecks({
  valid,
  isGiven,
  problem,
}: TableReading<typeof providerTable>): readonly SettingProblem[] {
  const isMissing = (provider: ProviderName) => (name: ProviderSetting) =>
    problem(
      name,
      `is missing, but PUSH_PROVIDERS lists ${provider}; it must be ${expectationOf(providerTable[name].kind)}`,
    );
  const isElsewhere = (name: ProviderSetting) => name === "FCM_CREDENTIALS" && isGiven("FCM_PROJECT_ID");
  const missing = (valid.PUSH_PROVIDERS ?? []).flatMap((provider) =>
    needed[provider].filter((name) => !isGiven(name) && !isElsewhere(name)).map(isMissing(provider)),
  );
  if (isGiven("FCM_CREDENTIALS") && isGiven("FCM_PROJECT_ID")) {
    missing.push(
      problem("FCM_PROJECT_ID", "must not be set beside FCM_CREDENTIALS, which names its project"),
    );
  }
  const { WEBPUSH_VAPID_PRIVATE_KEY: [key] = [], WEBPUSH_VAPID_PUBLIC_KEY: point } = valid;
  if (key === undefined || point === undefined || key.publicKey === point) return missing;
  return [...missing, problem("WEBPUSH_VAPID_PUBLIC_KEY", "does not belong to WEBPUSH_VAPID_PRIVATE_KEY")];
}

type Values = SettingValues<typeof providerTable>;

export interface FcmSettings {
  /** An origin, as in `https://fcm.googleapis.com`. */
  readonly endpoint: string;
  /** Whose project is sent to; without a key of its own, by Google's application default credentials. */
  readonly account: ServiceAccount | Pick<ServiceAccount, "projectId">;
}

function fcmOf(settings: Values): FcmSettings | undefined {
  const { FCM_ENDPOINT: endpoint, FCM_CREDENTIALS: account, FCM_PROJECT_ID: projectId } = settings;
  if (account) return { endpoint, account };
  return projectId === undefined ? undefined : { endpoint, account: { projectId } };
}

export type ApnsSettings = Exclude<ReturnType<typeof apnsOf>, undefined>;

function apnsOf(settings: Values) {
  const { APNS_ENDPOINT: endpoint, APNS_KEY: key, APNS_TOPIC: topic } = settings;
  const { APNS_KEY_ID: keyId, APNS_TEAM_ID: teamId } = settings;
  return key && keyId && teamId && topic ? { endpoint, key, keyId, teamId, topic } : undefined;
}

export type WebPushSettings = Exclude<ReturnType<typeof webPushOf>, undefined>;

function webPushOf(settings: Values) {
  const { WEBPUSH_VAPID_PRIVATE_KEY: keys, WEBPUSH_VAPID_PUBLIC_KEY: point } = settings;
  const { WEBPUSH_SUBJECT: subject, WEBPUSH_ALLOWED_HOSTS: allowedHosts } = settings;
  if (!keys || !point || !subject) return undefined;
  return { vapidKeys: keys, subject, allowedHosts };
}
