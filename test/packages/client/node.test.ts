/** What the client keeps in files. */
import { createPublicKey, verify } from "node:crypto";
import { mkdtempSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { fileSigner, folderStore } from "../../../packages/client/src/node.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const directory = mkdtempSync(join(tmpdir(), "gatepost-client-"));
suiteCleanup().defer(() => rmSync(directory, { recursive: true, force: true }));

describe("folderStore", () => {
  test("of many writers at once one wins, and all read what it has written", async () => {
    const stores = Array.from({ length: 10 }, () => folderStore(join(directory, "parallel/store")));
    let expected: string | undefined;
    for (let round = 0; round < 20; round++) {
      const before = expected;
      const written = await Promise.all(
        stores.map((store, writer) => store.replace(before, `${round}.${writer}`)),
      );
      expect(written.filter(Boolean)).toHaveLength(1);
      expected = `${round}.${written.indexOf(true)}`;
      expect(new Set(await Promise.all(stores.map((store) => store.read())))).toEqual(new Set([expected]));
    }
  });

  test("writes nothing over another text, and removes", async () => {
    const store = folderStore(join(directory, "own"));
    expect(await store.read()).toBeUndefined();
    expect(await store.replace("other", "text")).toBe(false);
    expect(await store.replace(undefined, "text")).toBe(true);
    expect(await store.replace(undefined, "another")).toBe(false);
    expect(await store.replace("text", undefined)).toBe(true);
    expect(await folderStore(join(directory, "own")).read()).toBeUndefined();
    expect(statSync(join(directory, "own")).mode & 0o077).toBe(0);
  });

  test("a folder that is none fails, and is not taken for an empty one", async () => {
    const file = join(directory, "keys/key.pem");
    await fileSigner(file);
    await expect(folderStore(file).read()).rejects.toThrow();
  });
});

test("fileSigner makes one key, however many start at once, and signs with it", async () => {
  const file = join(directory, "keys/key.pem");
  const signers = await Promise.all(Array.from({ length: 5 }, () => fileSigner(file)));
  expect(new Set(signers.map(({ publicJwk }) => publicJwk.x)).size).toBe(1);
  expect(statSync(file).mode & 0o077).toBe(0);
  const [signer] = signers;
  const data = new TextEncoder().encode("data");
  const signature = await signer?.sign(data);
  const key = createPublicKey({ key: { ...signer?.publicJwk }, format: "jwk" });
  expect(verify("sha256", data, { key, dsaEncoding: "ieee-p1363" }, signature ?? data)).toBe(true);
});
