/**
 * Hashing of passwords and of clients' secrets, a core for some 10 ms each; work that would wait for seconds is
 * refused.
 */
import { randomBytes } from "node:crypto";
import { availableParallelism } from "node:os";
import { ErrorKinds, ServiceError } from "../../platform/base/errors.ts";
import { WorkQueue } from "../../platform/base/work-queue.ts";
import { WorkLimit } from "../work-limit.ts";
import { HashingThreads } from "./hashing-threads.ts";

/** OWASP's first recommendation for argon2id: 19 MiB, two passes, one lane. */
const argon2id = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };

/** Hashes at a time, in all workers together but at least one in each. One core is always left to all else. */
const places = Math.min(2, Math.max(1, availableParallelism() - 1));
/** For each of them: about a second's work. */
const admittedForEach = 64;

/** Secrets of clients that are checked at a time: few, so that guesses at them do not keep passwords waiting. */
const maxClientSecrets = 8;

const busy = (message: string) => () =>
  new ServiceError(ErrorKinds.unavailable, `${message} Try again in a moment.`, { retryAfterSeconds: 1 });

const tooMany = (what: string) => busy(`Too many ${what} are being checked.`);

/** For how long a password waits in the queue. */
const passwordTimeout = { maxWaitMs: 2_000, refuse: busy("The password could not be checked in time.") };

const threads = new HashingThreads();
const hashing = new WorkQueue(places);
const clientSecrets = new WorkLimit(maxClientSecrets, tooMany("secrets of clients"));

/** The limit on work that hashes for a caller. Refuses with unavailable. */
export const hashingLimit = new WorkLimit(admittedForEach * places, tooMany("passwords"));

/** Leaves to the other workers their part of the hashes at a time. @param workers how many there are, this one included */
export function shareHashing(workers: number): void {
  hashing.concurrent = Math.max(1, Math.floor(places / workers));
  hashingLimit.most = admittedForEach * hashing.concurrent;
}

/** argon2id hash of a secret or password, as a PHC string. */
export function hashSecret(secret: string): Promise<string> {
  return hashing.run(() => threads.hash(secret, argon2id));
}

/** A hash that no secret is known to have, and which takes as long to verify as any other. */
export function hashOfNobody(): string {
  const { memoryCost, timeCost, parallelism } = argon2id;
  const [salt, hash] = [16, 32].map((bytes) => randomBytes(bytes).toString("base64").replace(/=+$/, ""));
  return `$argon2id$v=19$m=${memoryCost},t=${timeCost},p=${parallelism}$${salt}$${hash}`;
}

/** Whether the hash is that of the secret. */
export function verifySecret(secretHash: string, secret: string): Promise<boolean> {
  return hashing.run(() => threads.verify(secretHash, secret));
}

/**
 * Whether the hash is that of the password, for a caller who waits for the response.
 * @throws unavailable if the password has waited too long in the queue
 */
export function verifyPassword(passwordHash: string, password: string): Promise<boolean> {
  return hashing.run(() => threads.verify(passwordHash, password), passwordTimeout);
}

/**
 * Whether the hash is that of a client's secret that this process has not verified before.
 * @throws unavailable if too many secrets of clients are being checked
 */
export function verifyClientSecret(secretHash: string, secret: string): Promise<boolean> {
  return clientSecrets.run(() => verifySecret(secretHash, secret));
}
