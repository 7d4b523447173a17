/**
 * The credentials of `npm run fakes`, kept in a directory so that what was set once in a sender's environment
 * and what devices registered is still right after a restart. For the fakes only: no real provider knows them.
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

export interface KeptCredentials {
  readonly serviceAccount: Omit<ServiceAccount, "token_uri">;
  readonly apns: ApnsCredentials;
  readonly vapid: VapidCredentials;
  /** What the keys of subscriptions come from, base64url. */
  readonly seed: string;
}

/**
 * Those of the directory; made at first use.
 * @param directory made if it is not there
 * @throws Error in words if the file holds something else, and what the file system throws
 */
export async function keptCredentials(directory: string): Promise<KeptCredentials> {
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

/** Writes a file that its owner alone can read, whole or not at all. */
export function writeSecret(path: string, content: string): void {
  const temporary = `${path}.${process.pid}.tmp`;
  writeFileSync(temporary, content, { mode: 0o600 });
  renameSync(temporary, path);
}

function read(path: string): KeptCredentials | undefined {
  let content: string;
  try {
    content = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
  try {
    const kept: Partial<KeptCredentials> = JSON.parse(content);
    const { serviceAccount, apns, vapid, seed } = kept;
    if (serviceAccount && apns && vapid && seed) return { serviceAccount, apns, vapid, seed };
  } catch {
    // Said below.
  }
  throw new Error(`${path} is damaged. Delete it, and a new one is made.`);
}
