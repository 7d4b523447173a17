import { execFile } from "node:child_process";
import { createPrivateKey, createPublicKey } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { developmentSecrets, developmentSecretsFile } from "../../src/development/secrets.ts";
import { problemsOf } from "../support/setting-problems.ts";

let root: string;
let dataDir: string;
let path: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), "secrets-"));
  dataDir = join(root, "deep", ".data");
  path = join(dataDir, developmentSecretsFile);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

test("keys are real, belong together and are marked as generated", () => {
  const { signing, otp, apiKey } = developmentSecrets(dataDir);
  const signingKey = createPrivateKey(signing.privateKey);
  expect(signingKey.asymmetricKeyDetails).toMatchObject({ modulusLength: 2048, publicExponent: 65_539n });
  expect(createPublicKey(signingKey).equals(createPublicKey(signing.publicKey))).toBe(true);
  expect(signing.keyId).toMatch(/^dev-[0-9a-f]{12}$/);
  const otpKey = createPrivateKey(otp.privateKey);
  expect(otpKey.asymmetricKeyDetails).toMatchObject({ modulusLength: 2048, publicExponent: 65_539n });
  expect(createPublicKey(otpKey).equals(createPublicKey(otp.publicKey))).toBe(true);
  expect(apiKey).toMatch(/^dev-[A-Za-z0-9_-]{32}$/);
});

test("they are generated once", () => {
  expect(developmentSecrets(dataDir)).toEqual(developmentSecrets(dataDir));
});

test("two directories have different ones", () => {
  expect(developmentSecrets(dataDir).signing).not.toEqual(developmentSecrets(join(root, "other")).signing);
});

test("only their owner can read them, whatever the umask, and nothing else is left behind", () => {
  const umask = process.umask(0);
  try {
    developmentSecrets(dataDir);
  } finally {
    process.umask(umask);
  }
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(statSync(dataDir).mode & 0o777).toBe(0o700);
  expect(readdirSync(dataDir)).toEqual([developmentSecretsFile]);
});

test("processes that start at once get the same, and it is what the file holds", async () => {
  const script = `
    import { developmentSecrets } from "./src/development/secrets.ts";
    process.stdout.write(JSON.stringify(developmentSecrets(${JSON.stringify(dataDir)})));`;
  const args = ["--input-type=module-typescript", "--eval", script];
  const run = () => promisify(execFile)(process.execPath, args, { cwd: join(import.meta.dirname, "../..") });
  const outputs = (await Promise.all(Array.from({ length: 6 }, run))).map(({ stdout }) => stdout);
  expect(new Set(outputs).size).toBe(1);
  expect(JSON.parse(outputs[0] ?? "")).toEqual(JSON.parse(readFileSync(path, "utf8")));
  expect(readdirSync(dataDir)).toEqual([developmentSecretsFile]);
});

describe("a damaged file is never replaced: its problem names the path and says to delete it", () => {
  const good = developmentSecrets(mkdtempSync(join(tmpdir(), "secrets-")));
  const mixed = { ...good, signing: { ...good.signing, publicKey: good.otp.publicKey } };
  test.each([
    ["empty", ""],
    ["cut off", JSON.stringify(good).slice(0, 900)],
    ["not an object", "null"],
    ["without a member", JSON.stringify({ ...good, otp: undefined })],
    ["with a member of another type", JSON.stringify({ ...good, apiKey: 1 })],
    ["with keys that are none", JSON.stringify({ ...good, otp: { privateKey: "x", publicKey: "y" } })],
    ["with keys that do not belong together", JSON.stringify(mixed)],
    ["with __proto__", '{"__proto__":{"apiKey":"x"}}'],
  ])("%s", async (_, content) => {
    mkdirSync(dataDir, { recursive: true });
    writeFileSync(path, content);
    const [problem, ...others] = await problemsOf(() => developmentSecrets(dataDir));
    expect(problem?.name).toBe("DATA_DIR");
    expect(problem?.what).toContain(`holds a damaged file ${path} (`);
    expect(problem?.what).toMatch(/delete it, and a new one is made$/);
    expect(problem?.what).not.toContain("PRIVATE KEY");
    expect(others).toEqual([]);
    expect(readFileSync(path, "utf8")).toBe(content);
  });
});

test("a directory that cannot be used is a problem that names the path", async () => {
  writeFileSync(join(root, "deep"), "");
  const [problem] = await problemsOf(() => developmentSecrets(dataDir));
  expect(problem?.what).toBe(`is a directory in which ${path} cannot be kept (ENOTDIR)`);
});
