/** The settings of one-time codes that this service sends itself. */
import { isSupportedCountry } from "libphonenumber-js/max";
import * as v from "valibot";
import { overlapping } from "../platform/settings/json.ts";
import {
  checked,
  type Environment,
  integer,
  listOf,
  matching,
  must,
  oneOf,
  stricterInProduction,
} from "../platform/settings/kinds.ts";
import type {
  SettingProblem,
  SettingsTable,
  SettingValues,
  TableReading,
} from "../platform/settings/settings.ts";
import { confidential, urlWithoutQuery } from "../platform/settings/urls.ts";

const senders = ["webhook", "twilio", "log"] as const;

const regionsExpected = "a comma-separated list of ISO 3166-1 codes of two letters, such as GB";
const region = v.pipe(
  v.string(),
  v.toUpperCase(),
  v.check((text) => isSupportedCountry(text), must(regionsExpected)),
);

/** Bytes of a secret of Standard Webhooks, in base64. */
const webhookSecret = matching(
  "whsec_ and 24 to 64 bytes in base64; printf whsec_; openssl rand -base64 32 makes one",
  /^whsec_(?:[A-Za-z0-9+/]{4}){8,21}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})?$/,
);

const perWindow = integer(1, 1_000_000);

export const codesTable = {
  OTP_VERIFIER: {
    description:
      "`builtin`: this service makes, sends and checks the one-time codes of clients without a secret (docs/auth/codes.md). The grants `phone_otp` and `phone_otp_token` have the OTP verification service all the same.",
    kind: oneOf(["builtin"]),
    development: "builtin",
    example: "builtin",
  },
  OTP_SENDER: {
    description:
      "What hands the built-in verifier's messages over: a webhook of yours, Twilio, or in development mode alone the log.",
    kind: stricterInProduction(oneOf(senders), (sender) =>
      sender === "log" ? "must be webhook or twilio in production, where no log has codes" : undefined,
    ),
    development: "log",
    example: "webhook",
  },
  OTP_TEXT: {
    description: "The text of the message, with `{code}` where the code stands.",
    kind: checked(
      "a text of at most 480 characters with {code} in it",
      (text) => text.length <= 480 && text.includes("{code}") && /^(?:\P{Cc}|\n)+$/u.test(text),
    ),
    default: "Your code is {code}. Never share it.",
  },
  OTP_REGIONS: {
    description:
      "The regions whose numbers get codes, by ISO 3166-1; needed with OTP_VERIFIER=builtin. Development mode sends to all unless set.",
    kind: listOf(region, regionsExpected),
    example: "DE,AT,CH",
  },
  OTP_WEBHOOK_URL: {
    description: "Where messages are posted to (openapi/otp-webhook.yaml).",
    kind: confidential(urlWithoutQuery("an http or https URL without user, query and fragment")),
    example: "https://sms.internal/codes",
  },
  OTP_WEBHOOK_SECRET: {
    description: "What signs them, by Standard Webhooks; two while one replaces the other, which both sign.",
    kind: overlapping(() => webhookSecret),
    secret: true,
    exampleFile: "otp-webhook-secret",
  },
  TWILIO_ACCOUNT_SID: {
    description: "The account at Twilio that sends the messages.",
    kind: matching("AC and 32 hexadecimal digits", /^AC[0-9a-f]{32}$/),
    example: "AC0123456789abcdef0123456789abcdef",
  },
  TWILIO_AUTH_TOKEN: {
    description: "Its auth token.",
    kind: matching("16 to 128 visible ASCII characters", /^[\x21-\x7e]{16,128}$/),
    secret: true,
    exampleFile: "twilio-auth-token",
  },
  TWILIO_FROM: {
    description: "Who sends: a number of yours, a sender's name, or the SID of a messaging service (MG…).",
    kind: matching("a number, a name, or the SID of a messaging service", /^[\w +]{2,34}$/),
    example: "MG0123456789abcdef0123456789abcdef",
  },
  OTP_RESEND_SECONDS: {
    description: "Seconds between two codes to a phone, and of a session. A code is good for 300.",
    kind: integer(1, 300),
    default: "60",
  },
  OTP_SESSION_LIMIT: { description: "Codes of one session.", kind: integer(1, 10), default: "3" },
  OTP_PHONE_NETWORK_LIMIT: {
    description: "Codes a day to a phone that are asked for from one network (/24, /64).",
    kind: perWindow,
    default: "5",
  },
  OTP_PHONE_LIMIT: { description: "Codes a day to a phone.", kind: perWindow, default: "10" },
  OTP_ADDRESS_LIMIT: {
    description: "Codes an hour that are asked for from one address.",
    kind: perWindow,
    default: "60",
  },
  OTP_NETWORK_LIMIT: {
    description: "Codes an hour that are asked for from one /64 of IPv6.",
    kind: perWindow,
    default: "120",
  },
  OTP_PREFIX_LIMIT: {
    description: "Codes an hour to all numbers that differ in their last four digits alone.",
    kind: perWindow,
    default: "60",
  },
  OTP_CLIENT_LIMIT: { description: "Codes an hour of one client.", kind: perWindow, default: "1000" },
} as const satisfies SettingsTable;

type Values = SettingValues<typeof codesTable>;

/** Settings of the built-in verifier. */
export type CodesSettings = NonNullable<ReturnType<typeof codesSettings>>;
export type SenderSettings = NonNullable<ReturnType<typeof senderOf>>;

/** @returns undefined if no codes are sent from here */
export function codesSettings(settings: Values, environment: Environment) {
  const sender = senderOf(settings);
  if (settings.OTP_VERIFIER === undefined || sender === undefined) return undefined;
  return {
    sender,
    text: settings.OTP_TEXT,
    /** Undefined: all. Never in production. */
    regions: settings.OTP_REGIONS ?? (environment === "production" ? [] : undefined),
    resendSeconds: settings.OTP_RESEND_SECONDS,
    limits: {
      session: settings.OTP_SESSION_LIMIT,
      phone_network: settings.OTP_PHONE_NETWORK_LIMIT,
      phone: settings.OTP_PHONE_LIMIT,
      address: settings.OTP_ADDRESS_LIMIT,
      network: settings.OTP_NETWORK_LIMIT,
      prefix: settings.OTP_PREFIX_LIMIT,
      client: settings.OTP_CLIENT_LIMIT,
    },
  };
}

function senderOf(settings: Values) {
  const { OTP_WEBHOOK_URL: url, OTP_WEBHOOK_SECRET: secrets } = settings;
  const { TWILIO_ACCOUNT_SID: accountSid, TWILIO_AUTH_TOKEN: authToken, TWILIO_FROM: from } = settings;
  switch (settings.OTP_SENDER) {
    case "log":
      return { kind: "log" } as const;
    case "webhook":
      if (url === undefined || !secrets) return undefined;
      return { kind: "webhook", url, secrets } as const;
    case "twilio":
      if (accountSid === undefined || authToken === undefined || from === undefined) return undefined;
      return { kind: "twilio", accountSid, authToken, from } as const;
    default:
      return undefined;
  }
}

const neededBySender = {
  log: [],
  webhook: ["OTP_WEBHOOK_URL", "OTP_WEBHOOK_SECRET"],
  twilio: ["TWILIO_ACCOUNT_SID", "TWILIO_AUTH_TOKEN", "TWILIO_FROM"],
} as const;

/** What the built-in verifier lacks. */
export function codesProblems(
  { valid, isGiven, problem }: Pick<TableReading<typeof codesTable>, "valid" | "isGiven" | "problem">,
  environment: Environment,
): readonly SettingProblem[] {
  if (valid.OTP_VERIFIER !== "builtin") return [];
  const { OTP_SENDER: sender } = valid;
  const byVerifier =
    environment === "production"
      ? (["OTP_SENDER", "OTP_REGIONS"] as const).filter((name) => !isGiven(name))
      : [];
  const bySender = (sender ? neededBySender[sender] : []).filter((name) => !isGiven(name));
  return [
    ...byVerifier.map((name) => problem(name, "is missing, but OTP_VERIFIER is builtin")),
    ...bySender.map((name) => problem(name, `is missing, but OTP_SENDER is ${sender}`)),
  ];
}
