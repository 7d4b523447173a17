/**
 * A folder with the files of the signing key and of the key that comes after it. Every change can be repeated after one
 * that was interrupted, and a public key is published before anything is signed with it.
 */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type KeyObject,
  randomUUID,
} from "node:crypto";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { calculateJwkThumbprint } from "jose";
import { parse } from "../../platform/settings/kinds.ts";
import { keyId, type PublishedKey, publishedKey, publishedKeys } from "../key-settings.ts";

/** The files, by the settings that name them. */
export const keyFiles = {
  RSA_PRIVATE_KEY_FILE: "rsa-private-key.pem",
  RSA_PUBLIC_KEY_FILE: "rsa-public-key.pem",
  RSA_KEY_ID_FILE: "rsa-key-id",
  RSA_PUBLISHED_KEYS_FILE: "published-keys.json",
} as const;

const nextFile = "next-private-key.pem";

/** A change that the folder does not allow as it is. */
export class KeyFolderError extends Error {
  override readonly name = "KeyFolderError";
}

/** What a folder holds, by the ids of its keys. */
export interface KeyFolder {
  /** Signs; undefined where the folder has no key yet. */
  readonly signing: string | undefined;
  /** Published, to sign later; undefined if there is none. */
  readonly next: string | undefined;
  /** Published still, for tokens that they have signed. */
  readonly previous: readonly string[];
}

export async function readKeyFolder(folder: string): Promise<KeyFolder> {
  const private_ = readKey(folder, keyFiles.RSA_PRIVATE_KEY_FILE);
  const next = await nextKey(folder);
  const signing = private_ && readKeyId(folder);
  const others = [signing, next?.jwk.kid];
  return {
    signing,
    next: next?.jwk.kid,
    previous: readPublished(folder)
      .map(({ kid }) => kid)
      .filter((kid) => !others.includes(kid)),
  };
}

/**
 * Makes the first key, which signs, or else the next one, which is published.
 * @returns which of the two
 * @throws KeyFolderError where there is a next one, or keys are published by a folder without the one that signs
 */
export async function makeKey(folder: string): Promise<"signing" | "next"> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  if (!readKey(folder, keyFiles.RSA_PRIVATE_KEY_FILE)) {
    if (readPublished(folder).length > 0 || existsSync(join(folder, nextFile)))
      throw new KeyFolderError(
        `There are keys here, but no ${keyFiles.RSA_PRIVATE_KEY_FILE}. Nothing was changed.`,
      );
    publish(folder, []);
    await sign(folder, privateKey);
    return "signing";
  }
  const published = readPublished(folder);
  const present = await nextKey(folder);
  if (present && published.some(({ kid }) => kid === present.jwk.kid))
    throw new KeyFolderError(`There is a next key already, ${present.jwk.kid}.`);
  // One whose publication was interrupted is published.
  const next = present?.key ?? privateKey;
  if (!present) write(folder, nextFile, pem(next));
  publish(folder, [...published, await jwkOf(next)]);
  return "next";
}

/**
 * Makes the next key the one that signs, and publishes the one that has signed.
 * @throws KeyFolderError where there is no next key, or it is not published
 */
export async function useNextKey(folder: string): Promise<void> {
  const next = await nextKey(folder);
  const old = readKey(folder, keyFiles.RSA_PRIVATE_KEY_FILE);
  if (!next || !old) throw new KeyFolderError("There is no next key. Make one, and wait until all know it.");
  const { kid } = next.jwk;
  const published = readPublished(folder);
  const isSigning = pem(old) === pem(next.key);
  if (!isSigning) {
    if (!published.some((key) => key.kid === kid))
      throw new KeyFolderError(`The next key, ${kid}, is not published.`);
    const oldKid = readKeyId(folder);
    publish(folder, [...published.filter((key) => key.kid !== oldKid), await jwkOf(old, oldKid)]);
  }
  await sign(folder, next.key);
  publish(
    folder,
    readPublished(folder).filter((key) => key.kid !== kid),
  );
  rmSync(join(folder, nextFile));
}

/**
 * Publishes no key any more that neither signs nor comes next.
 * @throws KeyFolderError where the next key has begun to sign and the one before is not published yet
 */
export async function retireKeys(folder: string): Promise<void> {
  const next = await nextKey(folder);
  const signing = readKey(folder, keyFiles.RSA_PRIVATE_KEY_FILE);
  if (next && signing && pem(next.key) === pem(signing))
    throw new KeyFolderError("use-next was interrupted. Repeat it first.");
  publish(
    folder,
    readPublished(folder).filter(({ kid }) => kid === next?.jwk.kid),
  );
}

/** Writes the files of the key that signs, the private one last: without it there is none. */
async function sign(folder: string, key: KeyObject): Promise<void> {
  const { kid } = await jwkOf(key);
  const publicPem = createPublicKey(key).export({ type: "spki", format: "pem" }).toString();
  write(folder, keyFiles.RSA_KEY_ID_FILE, `${kid}\n`);
  write(folder, keyFiles.RSA_PUBLIC_KEY_FILE, publicPem);
  write(folder, keyFiles.RSA_PRIVATE_KEY_FILE, pem(key));
}

async function nextKey(folder: string): Promise<{ key: KeyObject; jwk: PublishedKey } | undefined> {
  const key = readKey(folder, nextFile);
  return key && { key, jwk: await jwkOf(key) };
}

const pem = (key: KeyObject): string => key.export({ type: "pkcs8", format: "pem" }).toString();

/** @param kid the key's thumbprint (RFC 7638) unless given, which no other key has */
async function jwkOf(key: KeyObject, kid?: string): Promise<PublishedKey> {
  const published = publishedKey(createPublicKey(key), "");
  return { ...published, kid: kid ?? (await calculateJwkThumbprint(published)) };
}

function publish(folder: string, keys: readonly PublishedKey[]): void {
  write(folder, keyFiles.RSA_PUBLISHED_KEYS_FILE, `${JSON.stringify({ keys }, null, 2)}\n`);
}

/** Replaces the file as a whole; only its owner may read it. */
function write(folder: string, file: string, text: string): void {
  const temporary = join(folder, `.${file}.${randomUUID()}`);
  writeFileSync(temporary, text, { mode: 0o600, flush: true });
  renameSync(temporary, join(folder, file));
}

function read(folder: string, file: string): string | undefined {
  const path = join(folder, file);
  return existsSync(path) ? readFileSync(path, "utf8") : undefined;
}

function readKey(folder: string, file: string): KeyObject | undefined {
  const text = read(folder, file);
  try {
    return text === undefined ? undefined : createPrivateKey(text);
  } catch {
    throw new KeyFolderError(`${join(folder, file)} is not a private key in PEM form.`);
  }
}

function readKeyId(folder: string): string {
  const parsed = parse(keyId, (read(folder, keyFiles.RSA_KEY_ID_FILE) ?? "").trim(), "production");
  if ("value" in parsed) return parsed.value;
  throw new KeyFolderError(`${join(folder, keyFiles.RSA_KEY_ID_FILE)} ${parsed.problems[0]}.`);
}

function readPublished(folder: string): readonly PublishedKey[] {
  const text = read(folder, keyFiles.RSA_PUBLISHED_KEYS_FILE);
  if (text === undefined) return [];
  const parsed = parse(publishedKeys, text, "production");
  if ("value" in parsed) return parsed.value;
  throw new KeyFolderError(`${join(folder, keyFiles.RSA_PUBLISHED_KEYS_FILE)} ${parsed.problems[0]}.`);
}
