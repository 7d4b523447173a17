/**
 * Hashing of the passwords of identities and the secrets of clients. Each hash takes a core for some 10 ms, on threads
 * of its own; there are few of them, and work that would wait for seconds is refused at once.
 */
import { randomBytes } from "node:crypto";
import { availableParallelism } from "node:os";
import { BoundedWork, type Room } from "../../platform/base/bounded-work.ts";
import { ErrorKinds, ServiceError } from "../../platform/base/errors.ts";
import { HashingThreads } from "./hashing-threads.ts";

/** OWASP's first recommendation for argon2id: 19 MiB, two passes, one lane. */
const argon2id = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };

/** Hashes at a time. One core is always left to all else. */
const concurrent = Math.min(2, Math.max(1, availableParallelism() - 1));
/** About a second's work. */
const maxAdmitted = 64 * concurrent;

/** Secrets of clients that are checked at a time: guesses at them take no room from passwords. */
const maxClientSecrets = 8;

const busy = (message: string) => () =>
  new ServiceError(ErrorKinds.unavailable, `${message} Try again in a moment.`, { retryAfterSeconds: 1 });

const tooMany = (what: string) => busy(`Too many ${what} are being checked.`);

/** How long a password waits for its turn. */
const patience = { maxWaitMs: 2_000, refuse: busy("The password could not be checked in time.") };

const threads = new HashingThreads();
const hashing = new BoundedWork(concurrent, maxAdmitted, tooMany("passwords"));
const clientSecrets = new BoundedWork(maxClientSecrets, maxClientSecrets, tooMany("secrets of clients"));

/** For work that hashes for a caller. Refuses with unavailable. */
export const hashingRoom: Room = hashing;

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
 * As {@link verifySecret}, for a caller who waits for it. On a machine that has less time than the places for hashes
 * assume, its turn would come after the caller was answered 503, and a guess would count whose outcome nobody learned.
 * @throws unavailable
 */
export function verifyPassword(passwordHash: string, password: string): Promise<boolean> {
  return hashing.run(() => threads.verify(passwordHash, password), patience);
}

/** As {@link verifySecret}, for a client's secret that this process does not know yet. @throws unavailable */
export function verifyClientSecret(secretHash: string, secret: string): Promise<boolean> {
  return clientSecrets.admit(() => verifySecret(secretHash, secret));
}
