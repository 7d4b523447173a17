/** `npm run keys`: the files of the signing key, and how it is rotated without an outage. */
import {
  copyFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { decodeProtectedHeader } from "jose";
import { beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  keyFiles,
  makeKey,
  readKeyFolder,
  retireKeys,
  useNextKey,
} from "../../../src/auth/keys/key-folder.ts";
import { authApi } from "../../support/auth-api.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { type AuthStore, createAuthStore } from "../../support/auth-store.ts";
import { readContract } from "../../support/contract-check.ts";
import { killAll, startProgram } from "../../support/program.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { production, readAuth } from "../settings-fixture.ts";

const cleanup = suiteCleanup();
cleanup.defer(killAll);
let folder: string;
beforeEach(() => {
  folder = join(mkdtempSync(join(tmpdir(), "gatepost-test-")), "keys");
  cleanup.defer(() => rmSync(folder, { recursive: true, force: true }));
});

const files = () =>
  Object.fromEntries(Object.entries(keyFiles).map(([name, file]) => [name, join(folder, file)]));
const fileOf = (name: keyof typeof keyFiles) => join(folder, keyFiles[name]);

test("the first key signs, is for its owner's eyes only, and is one that production takes", async () => {
  expect(await makeKey(folder)).toBe("signing");
  const { signing, next, previous } = await readKeyFolder(folder);
  expect(signing).toMatch(/^[\w-]{43}$/);
  expect({ next, previous }).toEqual({ next: undefined, previous: [] });
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  for (const path of Object.values(files())) expect(statSync(path).mode & 0o777, path).toBe(0o600);
  const inline = { RSA_PRIVATE_KEY: "", RSA_PUBLIC_KEY: "", RSA_KEY_ID: "" };
  const settings = await readAuth(production({ ...inline, ...files() }));
  expect(settings.signing.keyId).toBe(signing);
});

test("a second next key is refused, and so is a use of none", async () => {
  await makeKey(folder);
  await expect(useNextKey(folder)).rejects.toThrow("There is no next key");
  expect(await makeKey(folder)).toBe("next");
  await expect(makeKey(folder)).rejects.toThrow("There is a next key already");
});

test("published keys are kept where the one that signs is missing", async () => {
  await makeKey(folder);
  await makeKey(folder);
  rmSync(fileOf("RSA_PRIVATE_KEY_FILE"));
  const before = readFileSync(fileOf("RSA_PUBLISHED_KEYS_FILE"), "utf8");
  await expect(makeKey(folder)).rejects.toThrow("There are keys here");
  expect(readFileSync(fileOf("RSA_PUBLISHED_KEYS_FILE"), "utf8")).toBe(before);
});

test("nothing is retired where the next key began to sign and the one before is not published", async () => {
  await makeKey(folder);
  await makeKey(folder);
  copyFileSync(join(folder, "next-private-key.pem"), fileOf("RSA_PRIVATE_KEY_FILE"));
  await expect(retireKeys(folder)).rejects.toThrow("Repeat it first");
});

test("retiring a key says which tokens end with it, and until when they may be alive", async () => {
  await makeKey(folder);
  const { signing: old } = await readKeyFolder(folder);
  await makeKey(folder);
  await useNextKey(folder);
  const usedAt = new Date("2026-11-28T12:00:00Z");
  utimesSync(fileOf("RSA_PRIVATE_KEY_FILE"), usedAt, usedAt);
  const retire = () => startProgram([process.execPath, "src/keys.ts", "retire", folder], {});
  const first = retire();
  expect(await first.ended(), first.output()).toBe(0);
  expect(first.output()).toContain(`No longer published: ${old}.`);
  expect(first.output()).toContain("900 seconds after the last process was restarted");
  expect(first.output()).toContain("2026-11-28T12:15:00.000Z");
  expect(first.output()).toMatch(/introspection then says that they are\s+inactive.*respond 401/s);
  const again = retire();
  expect(await again.ended()).toBe(0);
  expect(again.output()).toContain("There is no key to retire.");
});

test("a change that was interrupted is completed by trying it again", async () => {
  await makeKey(folder);
  await makeKey(folder);
  const { signing, next } = await readKeyFolder(folder);
  const published = readFileSync(fileOf("RSA_PUBLISHED_KEYS_FILE"));
  // The next key was made, and not published.
  writeFileSync(fileOf("RSA_PUBLISHED_KEYS_FILE"), '{"keys":[]}');
  await expect(useNextKey(folder)).rejects.toThrow("is not published");
  expect(await makeKey(folder)).toBe("next");
  expect(readFileSync(fileOf("RSA_PUBLISHED_KEYS_FILE"))).toEqual(published);
  // The private key was replaced, and nothing after it was done.
  const before = JSON.parse(published.toString());
  const old = { ...before.keys[0], kid: signing };
  writeFileSync(fileOf("RSA_PUBLISHED_KEYS_FILE"), JSON.stringify({ keys: [...before.keys, old] }));
  copyFileSync(join(folder, "next-private-key.pem"), fileOf("RSA_PRIVATE_KEY_FILE"));
  await useNextKey(folder);
  expect(await readKeyFolder(folder)).toEqual({ signing: next, next: undefined, previous: [signing] });
});

test("the command says what to do next, and which settings name the files", async () => {
  const run = (...args: string[]) => startProgram([process.execPath, "src/keys.ts", ...args], {});
  const made = run("new", folder);
  expect(await made.ended(), made.output()).toBe(0);
  expect(made.stdout()).toContain(`RSA_PRIVATE_KEY_FILE=${fileOf("RSA_PRIVATE_KEY_FILE")}`);
  const refused = run("use-next", folder);
  expect(await refused.ended()).toBe(1);
  expect(refused.stderr()).toBe("There is no next key. Make one, and wait until all know it.\n");
  const unknown = run("rotate", folder);
  expect(await unknown.ended()).toBe(2);
  expect(unknown.stderr()).toContain("Unknown command 'rotate'.");
});

describe("a server with the files", () => {
  let store: AuthStore;
  beforeAll(async () => {
    store = await createAuthStore("PGlite");
    cleanup.defer(() => store.drop());
  });

  async function withServer<T>(work: (server: AuthServer) => Promise<T>): Promise<T> {
    const server = await startAuthServer("PGlite", { env: { ...store.env, ...files() } });
    try {
      return await work(server);
    } finally {
      await server.stop();
    }
  }
  const apiOf = ({ base }: AuthServer) => authApi(base, readContract("auth"));
  const published = async ({ base }: AuthServer): Promise<string[]> => {
    const { keys }: { keys: { kid: string }[] } = JSON.parse(await (await fetch(`${base}/v1/jwks`)).text());
    return keys.map(({ kid }) => kid).sort();
  };

  test("knows the next key before it signs, and the old one until it is retired", async () => {
    await makeKey(folder);
    const { signing: old = "" } = await readKeyFolder(folder);
    const { id, token } = await withServer(async (server) => {
      const identity = await apiOf(server).newIdentity();
      const pair = await apiOf(server).newPair(identity.id);
      return { id: identity.id, token: pair.access_token };
    });
    expect(decodeProtectedHeader(token).kid).toBe(old);

    await makeKey(folder);
    const { next = "" } = await readKeyFolder(folder);
    expect(await withServer(published)).toEqual([old, next].sort());

    await useNextKey(folder);
    await withServer(async (server) => {
      expect(await published(server)).toEqual([old, next].sort());
      expect((await apiOf(server).introspect(token)).active).toBe(true);
      expect(decodeProtectedHeader((await apiOf(server).newPair(id)).access_token).kid).toBe(next);
    });

    await retireKeys(folder);
    expect(await readKeyFolder(folder)).toEqual({ signing: next, next: undefined, previous: [] });
    await withServer(async (server) => {
      expect(await published(server)).toEqual([next]);
      expect((await apiOf(server).introspect(token)).active).toBe(false);
    });
  });
});
