/**
 * Credentials of the push providers, as an operator sets them: kinds of setting that take only what the
 * provider will take. None of the secret ones is ever quoted.
 */
import { createECDH, createPrivateKey, ECDH, type KeyObject } from "node:crypto";
import { json } from "../platform/settings/json.ts";
import {
  baseUrl,
  type Environment,
  type Parsed,
  type SettingKind,
  stricterInProduction,
} from "../platform/settings/kinds.ts";
import { pemBlock } from "../platform/settings/pem.ts";

/** What is used of a Google service account. */
export interface ServiceAccount {
  readonly projectId: string;
  /** `kid` of the assertions. */
  readonly privateKeyId: string | undefined;
  /** PEM; RSA of at least 2048 bits. */
  readonly privateKey: string;
  readonly clientEmail: string;
  /** Where access tokens are got. */
  readonly tokenUri: string;
}

/** An https URL; development takes http, too. */
export function secure(kind: SettingKind<string>): SettingKind<string> {
  return stricterInProduction(kind, (url) =>
    url.startsWith("https:") ? undefined : "must begin with https in production",
  );
}

interface AccountFile {
  readonly project_id: string;
  readonly private_key_id?: string;
  readonly private_key: string;
  readonly client_email: string;
  readonly token_uri: string;
}

function text(pattern: string, description: string) {
  return { type: "string", pattern, description };
}

const accountFile = json<AccountFile>(
  "the JSON of a Google service account",
  {
    type: "object",
    description: "an object",
    required: ["project_id", "private_key", "client_email", "token_uri"],
    properties: {
      type: { const: "service_account", description: "service_account" },
      project_id: text("^[a-z0-9:.-]{1,100}$", "the id of a project"),
      private_key_id: text("^[\\x21-\\x7e]{1,128}$", "1 to 128 visible ASCII characters"),
      private_key: text("^\\s*-----BEGIN ", "a private key in PEM form"),
      client_email: text("^[\\x21-\\x7e]{1,320}$", "an e-mail address"),
      token_uri: text("^https?://", "an http or https URL"),
    },
  },
  accountProblems,
);

function accountProblems(file: AccountFile, environment: Environment): readonly string[] {
  const problems: string[] = [];
  const bits = rsaBits(file.private_key);
  if (bits === undefined || bits < 2048) {
    problems.push("private_key must be an unencrypted RSA key of at least 2048 bits");
  }
  const parsed = secure(baseUrl).parse(file.token_uri, environment);
  if ("problems" in parsed) problems.push(...parsed.problems.map((problem) => `token_uri ${problem}`));
  return problems;
}

function rsaBits(pem: string): number | undefined {
  const key = privateKey(pem);
  return key?.asymmetricKeyType === "rsa" ? key.asymmetricKeyDetails?.modulusLength : undefined;
}

function privateKey(pem: string): KeyObject | undefined {
  try {
    return createPrivateKey(pem);
  } catch {
    return undefined;
  }
}

/** The service account that sends with FCM, from its JSON file. */
export const serviceAccount: SettingKind<ServiceAccount> = {
  ...accountFile,
  parse: (setting, environment): Parsed<ServiceAccount> => {
    const parsed = accountFile.parse(setting, environment);
    if ("problems" in parsed) return parsed;
    const { value: file } = parsed;
    return {
      value: {
        projectId: file.project_id,
        privateKeyId: file.private_key_id,
        privateKey: file.private_key,
        clientEmail: file.client_email,
        tokenUri: file.token_uri,
      },
    };
  },
};

/** The key of an APNs provider token. */
export const apnsKey = pemBlock(
  "an unencrypted private EC P-256 key in PEM form, the .p8 file",
  ["PRIVATE KEY", "EC PRIVATE KEY"],
  (pem) => {
    const { asymmetricKeyType: type, asymmetricKeyDetails } = createPrivateKey(pem);
    if (asymmetricKeyDetails?.namedCurve === "prime256v1") return { value: pem };
    return { problems: [`must be an EC P-256 key, but is of type ${type}`] };
  },
);

/** The private VAPID key (RFC 8292), in the form in which tools print it. */
export const vapidPrivateKey: SettingKind<string> = {
  expects: "a P-256 private key: 32 bytes in base64url",
  quotable: false,
  parse: (key) =>
    vapidPublicOf(key) === undefined ? { problems: [`must be ${vapidPrivateKey.expects}`] } : { value: key },
};

/** The public half of a private VAPID key; undefined if it is none. */
export function vapidPublicOf(key: string): string | undefined {
  if (!/^[\w-]{43}$/.test(key)) return undefined;
  try {
    const ecdh = createECDH("prime256v1");
    ecdh.setPrivateKey(key, "base64url");
    return ecdh.getPublicKey("base64url");
  } catch {
    return undefined;
  }
}

/** The public VAPID key, in the form in which browsers take it. */
export const vapidPublicKey: SettingKind<string> = {
  expects: "a P-256 public key: an uncompressed point of 65 bytes in base64url",
  quotable: true,
  parse: (key) =>
    isUncompressedPoint(Buffer.from(/^[\w-]{87}$/.test(key) ? key : "", "base64url"))
      ? { value: key }
      : { problems: [`must be ${vapidPublicKey.expects}`] },
};

/** Whether these are the 65 bytes of a point that lies on P-256 (SEC 1 section 2.3.4). */
export function isUncompressedPoint(bytes: Uint8Array): boolean {
  if (bytes.length !== 65 || bytes[0] !== 4) return false;
  try {
    ECDH.convertKey(bytes, "prime256v1");
    return true;
  } catch {
    return false;
  }
}
