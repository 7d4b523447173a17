/** Hashing of the passwords of identities and the secrets of clients. */
import { hash, verify } from "@node-rs/argon2";

/** OWASP's first recommendation for argon2id: 19 MiB, two passes, one lane. */
const argon2id = { memoryCost: 19_456, timeCost: 2, parallelism: 1 };

/** argon2id hash of a secret or password, as a PHC string. */
export function hashSecret(secret: string): Promise<string> {
  return hash(secret, argon2id);
}

/** Whether the hash is that of the secret. */
export function verifySecret(secretHash: string, secret: string): Promise<boolean> {
  return verify(secretHash, secret);
}
