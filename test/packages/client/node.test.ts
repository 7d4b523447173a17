/** What the client keeps in files. */
import { execFileSync } from "node:child_process";
import { createPublicKey, verify } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
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

  const texts = (folder: string) => readdirSync(folder).filter((name) => name.startsWith("text-"));

  test("what killed processes have left is swept, and what may still be named is not", async () => {
    const store = folderStore(join(directory, "killed"));
    const home = join(directory, "killed/session");
    await store.replace(undefined, "a");
    for (const left of ["text-0-x", "text-1-x", "text-2-x", "text-3-x"])
      writeFileSync(join(home, left), "left");
    await store.replace("a", "b");
    expect(texts(home)).toEqual([expect.stringMatching(/^text-2-(?!x)/), "text-3-x"]);
    await store.replace("b", undefined);
    expect([await store.read(), texts(home)]).toEqual([undefined, []]);
  });

  test("a folder that holds other files is taken as it is, as is a volume's", async () => {
    const folder = join(directory, "volume");
    mkdirSync(folder);
    writeFileSync(join(folder, ".gitkeep"), "");
    expect(await folderStore(folder).replace(undefined, "text")).toBe(true);
    expect(readdirSync(folder)).toEqual([".gitkeep", "session"]);
  });

  test("a text that somebody has removed is an empty one, and can be replaced", async () => {
    const store = folderStore(join(directory, "lost"));
    const home = join(directory, "lost/session");
    await store.replace(undefined, "text");
    for (const name of texts(home)) rmSync(join(home, name));
    expect(await store.read()).toBe("");
    expect(await store.replace("", "another")).toBe(true);
    expect(await store.read()).toBe("another");
  });

  test("a disk that is full leaves nothing behind, and keeps what there was", async () => {
    const folder = join(directory, "full");
    await folderStore(folder).replace(undefined, "text");
    const module = JSON.stringify(join(import.meta.dirname, "../../../packages/client/src/node.ts"));
    const program = `const { folderStore } = await import(${module});
      for (let write = 0; write < 5; write++)
        await folderStore(process.argv[1]).replace("text", "x".repeat(5000)).catch(({ code }) => console.log(code));`;
    const shell = 'ulimit -f 1; exec "$0" --input-type=module -e "$1" "$2"';
    const output = execFileSync("sh", ["-c", shell, process.execPath, program, folder], { encoding: "utf8" });
    expect(output).toBe("EFBIG\n".repeat(5));
    expect(await folderStore(folder).read()).toBe("text");
    expect(readdirSync(join(folder, "session"))).toHaveLength(2);
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

test("fileSigner removes keys that killed processes have left, and nothing else", async () => {
  const folder = join(directory, "left");
  const { publicJwk } = await fileSigner(join(folder, "key.pem"));
  for (const name of ["key.pem.new-x", "key.pem.bak"]) writeFileSync(join(folder, name), "");
  expect((await fileSigner(join(folder, "key.pem"))).publicJwk).toEqual(publicJwk);
  expect(readdirSync(folder)).toEqual(["key.pem", "key.pem.bak"]);
});
