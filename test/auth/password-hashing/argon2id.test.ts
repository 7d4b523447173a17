import { expect, test } from "vitest";
import {
  hashingLimit,
  hashOfNobody,
  hashSecret,
  shareHashing,
  verifySecret,
} from "../../../src/auth/password-hashing/argon2id.ts";

/** What decides how long a hash takes to verify: all but the random characters, whose number counts. */
const effort = (hash: string) => hash.replace(/[^$]+\$[^$]+$/, (text) => text.replaceAll(/[^$]/g, "x"));

test("the hash of nobody takes as long to verify as that of a secret, and no secret is right", async () => {
  const hashes = [hashOfNobody(), hashOfNobody()];
  const real = await hashSecret("a secret");
  expect(real).toMatch(/^\$argon2id\$v=19\$m=19456,t=2,p=1\$/);
  expect(hashes.map(effort)).toEqual([effort(real), effort(real)]);
  for (const hash of hashes) expect(await verifySecret(hash, "a secret")).toBe(false);
  expect(hashes[0]).not.toBe(hashes[1]);
});

test("workers divide the hashes at a time, and each has one at least", () => {
  const alone = hashingLimit.most;
  shareHashing(100);
  expect(hashingLimit.most).toBe(64);
  shareHashing(1);
  expect(hashingLimit.most).toBe(alone);
});
