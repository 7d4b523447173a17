/**
 * Keys and secrets of development mode: generated once and stored in DATA_DIR, so that tokens outlive a
 * restart. Production neither reads nor writes them. The key id and the API key begin with `dev-`, and both
 * key pairs have an exponent of their own, by which production recognises and refuses them.
 */
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, randomBytes } from "node:crypto";
import {
  closeSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { codeOf } from "../platform/base/error-code.ts";
import { developmentExponent } from "../platform/crypto/rsa.ts";
import { json, object } from "../platform/settings/json.ts";
import { generatedPrefix, must, parse } from "../platform/settings/kinds.ts";
import { SettingsError } from "../platform/settings/settings.ts";

/** PEM texts: PKCS #8 and SPKI. */
interface KeyPair {
  readonly privateKey: string;
  readonly publicKey: string;
}

export interface DevelopmentSecrets {
  /**
   * RSA, 2048 bits; signs access tokens. The id is {@link generatedPrefix} and 12 hexadecimal digits of the key's hash.
   */
  readonly signing: KeyPair & { readonly keyId: string };
  /** RSA, 2048 bits; the built-in OTP verifier signs with it. */
  readonly otp: KeyPair;
  /** The platform security key. */
  readonly apiKey: string;
}

/** The name of the file in DATA_DIR. */
export const developmentSecretsFile = "development-secrets.json";

const text = v.string(must("text"));

const fileKind = json(
  "development secrets",
  v.pipe(
    object("an object", {
      signing: object("a key pair with its id", { keyId: text, privateKey: text, publicKey: text }),
      otp: object("a key pair", { privateKey: text, publicKey: text }),
      apiKey: text,
    }),
    v.check(
      ({ signing, otp }) => isPair(signing) && isPair(otp),
      "must hold pairs of keys that belong together",
    ),
  ),
);

function isPair({ privateKey, publicKey }: KeyPair): boolean {
  try {
    return createPublicKey(createPrivateKey(privateKey)).equals(createPublicKey(publicKey));
  } catch {
    return false;
  }
}

/**
 * Returns the secrets stored in the directory; generates them at first use. Processes that start at the same time
 * get the same secrets.
 *
 * @param dataDir DATA_DIR; created if it does not exist
 * @throws SettingsError if the directory cannot be used or the file is damaged
 */
export function developmentSecrets(dataDir: string): DevelopmentSecrets {
  const path = join(dataDir, developmentSecretsFile);
  try {
    const kept = read(path);
    if (kept !== undefined) return kept;
    mkdirSync(dataDir, { recursive: true, mode: 0o700 });
    publish(path, `${JSON.stringify(generate(), null, 2)}\n`);
    const published = read(path);
    if (published !== undefined) return published;
  } catch (error) {
    if (error instanceof SettingsError) throw error;
    throw unusable(`is a directory in which ${path} cannot be kept (${codeOf(error) ?? "unknown reason"})`);
  }
  throw unusable(`is a directory in which ${path} does not stay`);
}

function unusable(what: string): SettingsError {
  return new SettingsError([{ name: "DATA_DIR", what, example: "DATA_DIR=.data" }]);
}

function read(path: string): DevelopmentSecrets | undefined {
  let content: string;
  try {
    content = readFileSync(path, "utf8");
  } catch (error) {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  }
  const parsed = parse(fileKind, content, "development");
  if ("value" in parsed) return parsed.value;
  throw unusable(`holds a damaged file ${path} (it ${parsed.problems[0]}); delete it, and a new one is made`);
}

function generate(): DevelopmentSecrets {
  const signing = generateKeyPair();
  const hash = createHash("sha256").update(signing.publicKey).digest("hex");
  return {
    signing: { keyId: `${generatedPrefix}${hash.slice(0, 12)}`, ...signing },
    otp: generateKeyPair(),
    apiKey: `${generatedPrefix}${randomBytes(24).toString("base64url")}`,
  };
}

/** Only an RSA key has room for a mark that its public half shows. */
function generateKeyPair(): KeyPair {
  const { privateKey, publicKey } = generateKeyPairSync("rsa", {
    modulusLength: 2048,
    publicExponent: developmentExponent,
  });
  return {
    privateKey: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    publicKey: publicKey.export({ type: "spki", format: "pem" }).toString(),
  };
}

/** Creates the file with its whole content unless it exists: creating a hard link is atomic. */
function publish(path: string, content: string): void {
  const temporary = `${path}.${process.pid}.${randomBytes(4).toString("hex")}.tmp`;
  try {
    const file = openSync(temporary, "wx", 0o600);
    try {
      writeFileSync(file, content);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    linkSync(temporary, path);
  } catch (error) {
    const code = codeOf(error);
    if (code === "EEXIST") return;
    // The file system has no hard links: the last of several processes wins, and all read the file afterwards.
    if (code !== "EPERM" && code !== "ENOTSUP" && code !== "EOPNOTSUPP") throw error;
    renameSync(temporary, path);
  } finally {
    rmSync(temporary, { force: true });
  }
}
