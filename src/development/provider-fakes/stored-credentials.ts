/**
 * The credentials of `npm run fakes`, stored in a directory, so that a sender's environment and the registered
 * subscriptions stay valid after a restart. They are for the fakes only; real providers do not accept them.
 */
import { randomBytes } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  type ApnsCredentials,
  newApnsCredentials,
  newServiceAccount,
  newVapidCredentials,
  type ServiceAccount,
  type VapidCredentials,
} from "./credentials.ts";

const secretsFile = "fakes.json";

export interface StoredCredentials {
  readonly serviceAccount: Omit<ServiceAccount, "token_uri">;
  readonly apns: ApnsCredentials;
  readonly vapid: VapidCredentials;
  /** The keys of subscriptions are derived from it; base64url. */
  readonly seed: string;
}

/**
 * Reads the credentials in the directory; creates them at first use.
 * @param directory created if it does not exist
 * @throws Error that names the file if it is damaged, and the errors of the file system
 */
export async function loadCredentials(directory: string): Promise<StoredCredentials> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const path = join(directory, secretsFile);
  const kept = read(path);
  if (kept) return kept;
  const made = {
    serviceAccount: await newServiceAccount("gatepost-fake"),
    apns: newApnsCredentials(),
    vapid: newVapidCredentials(),
    seed: randomBytes(32).toString("base64url"),
  };
  writeSecret(path, `${JSON.stringify(made, null, 2)}\n`);
  return made;
}

/** Writes a file that only its owner can read, atomically. */
export function writeSecret(path: string, content: string): void {
  const temporary = `${path}.${process.pid}.tmp`;
  writeFileSync(temporary, content, { mode: 0o600 });
  renameSync(temporary, path);
}

function read(path: string): StoredCredentials | undefined {
  let content: string;
  try {
    content = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
  try {
    const kept: Partial<StoredCredentials> = JSON.parse(content);
    const { serviceAccount, apns, vapid, seed } = kept;
    if (serviceAccount && apns && vapid && seed) return { serviceAccount, apns, vapid, seed };
  } catch {
    // Reported below.
  }
  throw new Error(`${path} is damaged. Delete it, and a new one is made.`);
}
