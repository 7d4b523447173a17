/** Settings of the message broker: NATS with JetStream. Without them events are delivered inside the process. */
import * as v from "valibot";
import type { EnvironmentVariables } from "../settings/environment.ts";
import {
  checked,
  type Environment,
  integer,
  listOf,
  stricterInProduction,
  unquoted,
} from "../settings/kinds.ts";
import { certificatesPem } from "../settings/pem.ts";
import { type ReadOptions, resolveSettings, type SettingsTable } from "../settings/settings.ts";
import { isPrivate } from "../settings/urls.ts";

const serverUrl = checked(
  "a URL such as nats://nats.internal:4222 or tls://nats.example.com:4222",
  (text) => {
    const url = URL.parse(text);
    return (
      url !== null &&
      /^(nats|tls):$/.test(url.protocol) &&
      url.hostname !== "" &&
      `${url.username}${url.password}${url.search}${url.hash}` === "" &&
      /^\/?$/.test(url.pathname)
    );
  },
);

/** The URL of a server; events name users and clients, and credentials go over the same connection. */
const confidentialServerUrl = stricterInProduction(serverUrl, (text) => {
  const url = new URL(text);
  return url.protocol === "tls:" || isPrivate(url)
    ? undefined
    : "must begin with tls in production, as its host is public";
});

/** The servers of one cluster. An error does not quote a URL, as there may be a password in it. */
const serverUrls = (environment: Environment) =>
  v.pipe(
    listOf(
      confidentialServerUrl(environment),
      "a comma-separated list of URLs such as nats://nats.internal:4222 or tls://nats.example.com:4222",
    ),
    unquoted(),
  );

const credentials = v.pipe(
  checked(
    "user:password, or the text of a NATS credentials file",
    (text) => /^[^:\p{Cc}]+:\P{Cc}+$/u.test(text) || isCredentialsFile(text),
  ),
  unquoted(),
);

function isCredentialsFile(text: string): boolean {
  return /-----BEGIN NATS USER JWT-----[\s\S]+-----BEGIN USER NKEY SEED-----/.test(text);
}

export const brokerTable = {
  BROKER_URL: {
    description:
      "The servers of NATS JetStream that events go through; without it they are delivered inside the process, and services in other processes learn of none.",
    kind: serverUrls,
    example: "nats://nats-0.internal:4222,nats://nats-1.internal:4222,nats://nats-2.internal:4222",
  },
  BROKER_CREDENTIALS: {
    description: "What the process signs in to BROKER_URL with; nothing unless set.",
    kind: credentials,
    secret: true,
    exampleFile: "broker.creds",
  },
  BROKER_CA: {
    description:
      "The authorities that may have signed the broker's certificate; those of Node.js unless set.",
    kind: certificatesPem,
    exampleFile: "broker-ca.pem",
  },
  BROKER_REPLICAS: {
    description:
      "On how many servers of the broker's cluster each event is kept; 3 outlives the loss of one, its disk included. Unless set, 3 if BROKER_URL lists three servers or more, otherwise 1.",
    kind: integer(1, 5),
    example: "3",
  },
  BROKER_RETENTION_DAYS: {
    description:
      "How many days the broker keeps events for consumers that are away; the same for both services.",
    kind: integer(1, 365),
    default: "7",
  },
} as const satisfies SettingsTable;

export type BrokerSettings = NonNullable<ReturnType<typeof resolveBrokerSettings>["value"]>;

/** The servers that have to be listed for events to be kept on as many of them. */
const replicated = 3;

/** Reads the settings of the broker; the value is undefined also if BROKER_URL is not set. */
export function resolveBrokerSettings(
  env: EnvironmentVariables,
  options: Pick<ReadOptions, "environment" | "prefix">,
) {
  const { value, problems } = resolveSettings(brokerTable, env, options);
  if (value?.BROKER_URL === undefined) return { value: undefined, problems };
  return {
    value: {
      servers: value.BROKER_URL,
      credentials: credentialsOf(value.BROKER_CREDENTIALS),
      ca: value.BROKER_CA,
      replicas: value.BROKER_REPLICAS ?? (value.BROKER_URL.length >= replicated ? replicated : 1),
      retentionDays: value.BROKER_RETENTION_DAYS,
    },
    problems,
  };
}

/** Of a user, or the text of a credentials file; undefined: the client does not sign in. */
function credentialsOf(text: string | undefined) {
  if (text === undefined) return undefined;
  if (isCredentialsFile(text)) return { file: text };
  const at = text.indexOf(":");
  return { user: text.slice(0, at), password: text.slice(at + 1) };
}
