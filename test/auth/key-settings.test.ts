import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  type JsonWebKey,
  type KeyObject,
} from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import {
  publishedKeys,
  signingPrivateKey,
  signingPublicKey,
  verificationKeys,
} from "../../src/auth/key-settings.ts";
import { parse as parseKind, type SettingKind } from "../../src/platform/settings/kinds.ts";
import { localhostCertificate } from "../support/localhost-certificate.ts";
import { problemLines } from "../support/setting-problems.ts";
import { pemOf, productionEnv, readAuth, rsaKeys } from "./settings-fixture.ts";

const parse = <T>(kind: SettingKind<T>, text: string) => parseKind(kind, text, "production");
const refused = (...problems: readonly string[]) => ({ problems });
const p256 = generateKeyPairSync("ec", { namedCurve: "P-256" });
const p384 = generateKeyPairSync("ec", { namedCurve: "P-384" });
const ed25519 = generateKeyPairSync("ed25519");
const pss = generateKeyPairSync("rsa-pss", { modulusLength: 2048 });

/** A public key whose modulus begins with a byte of ones and ends with this byte. */
function publicRsa(bits: number, lastByte: number): KeyObject {
  const modulus = Buffer.alloc(bits / 8, 0xff);
  modulus[modulus.length - 1] = lastByte;
  const jwk = { kty: "RSA", n: modulus.toString("base64url"), e: "AQAB" };
  return createPublicKey({ key: jwk, format: "jwk" });
}
const even = "must be an RSA key whose modulus is odd";

describe("the signing key pair", () => {
  const isPrivate = "must be an unencrypted private RSA key in PEM form";
  const isPublic = "must be a public RSA key in PEM form";
  const weak = (bits: number) => `must be an RSA key of at least 2048 bits, but has ${bits}`;
  const exponent = "must be an RSA key whose exponent is odd and at least 65537, but has 3";
  const encrypt = { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "x" } as const;
  const encryptPkcs1 = { type: "pkcs1", format: "pem", cipher: "aes-256-cbc", passphrase: "x" } as const;

  test.each([
    ["PKCS #8", (key: KeyObject) => pemOf(key)],
    ["PKCS #1", (key: KeyObject) => key.export({ type: "pkcs1", format: "pem" }).toString()],
    ["line breaks written out", (key: KeyObject) => pemOf(key).replaceAll("\n", "\\n")],
    ["Windows line breaks", (key: KeyObject) => pemOf(key).replaceAll("\n", "\r\n")],
    ["a comment before it", (key: KeyObject) => `Our key, made 2025:\n${pemOf(key)}\n\n`],
  ])("is taken in any form and handed on in one: %s", (_, write) => {
    const { privateKey, publicKey } = rsaKeys();
    expect(parse(signingPrivateKey, write(privateKey))).toEqual({ value: pemOf(privateKey) });
    expect(parse(signingPublicKey, write(publicKey))).toEqual({ value: pemOf(publicKey) });
  });

  test.each([
    ["1024 bits", () => pemOf(rsaKeys("weak", 1024).privateKey), weak(1024)],
    ["2047 bits", () => pemOf(rsaKeys("weak", 2047).privateKey), weak(2047)],
    ["exponent 3", () => pemOf(rsaKeys("weak", 2048, 3).privateKey), exponent],
    ["RSA-PSS", () => pemOf(pss.privateKey), "must be an RSA key, but is of type rsa-pss"],
    ["P-256", () => pemOf(p256.privateKey), "must be an RSA key, but is of type ec"],
    ["Ed25519", () => pemOf(ed25519.privateKey), "must be an RSA key, but is of type ed25519"],
    ["a public key", () => pemOf(rsaKeys().publicKey), `${isPrivate}, but holds a block PUBLIC KEY`],
    ["two keys", () => pemOf(rsaKeys().privateKey).repeat(2), `${isPrivate}, but holds 2 PEM blocks`],
    [
      "an encrypted key",
      () => rsaKeys().privateKey.export(encrypt).toString(),
      `${isPrivate}, but holds a block ENCRYPTED PRIVATE KEY`,
    ],
    [
      "an encrypted PKCS #1 key",
      () => rsaKeys().privateKey.export(encryptPkcs1).toString(),
      `${isPrivate}, but its RSA PRIVATE KEY cannot be decoded`,
    ],
    ["text", () => "hunter2", `${isPrivate}, but holds no whole PEM block`],
    [
      "half a key",
      () => pemOf(rsaKeys().privateKey).slice(0, 900),
      `${isPrivate}, but holds no whole PEM block`,
    ],
    [
      "a key that was cut",
      () => pemOf(rsaKeys().privateKey).replace(/\n.{64}\n/, "\n"),
      `${isPrivate}, but its PRIVATE KEY cannot be decoded`,
    ],
  ])("a private key that is refused: %s", (_, pem, problem) => {
    expect(parse(signingPrivateKey, pem())).toEqual(refused(problem));
  });

  test("a private key whose numbers do not belong together", () => {
    const jwk = rsaKeys().privateKey.export({ format: "jwk" });
    const other = rsaKeys("another").privateKey.export({ format: "jwk" });
    const mixed = { ...jwk, d: other.d, p: other.p, q: other.q, dp: other.dp, dq: other.dq, qi: other.qi };
    const pem = pemOf(createPrivateKey({ key: mixed as JsonWebKey, format: "jwk" }));
    expect(parse(signingPrivateKey, pem)).toHaveProperty("problems");
  });

  test.each([
    ["1024 bits", () => pemOf(rsaKeys("weak", 1024).publicKey), weak(1024)],
    ["exponent 3", () => pemOf(rsaKeys("weak", 2048, 3).publicKey), exponent],
    ["an even modulus", () => pemOf(publicRsa(2048, 2)), even],
    ["4104 bits", () => pemOf(publicRsa(4104, 1)), "must be an RSA key of at most 4096 bits, but has 4104"],
    ["a private key", () => pemOf(rsaKeys().privateKey), `${isPublic}, but holds a block PRIVATE KEY`],
    ["a certificate", () => localhostCertificate.cert, `${isPublic}, but holds a block CERTIFICATE`],
    ["P-256", () => pemOf(p256.publicKey), "must be an RSA key, but is of type ec"],
    [
      "a private key behind it",
      () => pemOf(rsaKeys().publicKey) + pemOf(rsaKeys().privateKey),
      `${isPublic}, but holds a block PRIVATE KEY`,
    ],
  ])("a public key that is refused: %s", (_, pem, problem) => {
    expect(parse(signingPublicKey, pem())).toEqual(refused(problem));
  });
});

describe("the OTP verification key", () => {
  test.each([
    ["RSA", () => rsaKeys().publicKey],
    ["P-256", () => p256.publicKey],
    ["Ed25519", () => ed25519.publicKey],
  ])("is taken: %s", (_, key) => {
    expect(parse(verificationKeys, pemOf(key()))).toEqual({ value: [pemOf(key())] });
  });

  const type = "must be an RSA, EC P-256 or Ed25519 key, but is of type";
  const form = "must be public keys (RSA, EC P-256 or Ed25519) in PEM form";
  const odd = "must be an RSA key whose exponent is odd and at least 65537, but has";
  test.each([
    ["P-384", () => p384.publicKey, `${type} ec`],
    ["RSA-PSS", () => pss.publicKey, `${type} rsa-pss`],
    ["X25519", () => generateKeyPairSync("x25519").publicKey, `${type} x25519`],
    [
      "RSA of 1024 bits",
      () => rsaKeys("weak", 1024).publicKey,
      "must be an RSA key of at least 2048 bits, but has 1024",
    ],
    ["RSA of an even modulus", () => publicRsa(2048, 2), even],
    ["RSA of exponent 3", () => rsaKeys("weak", 2048, 3).publicKey, `${odd} 3`],
    ["a private key", () => ed25519.privateKey, `${form}, but holds a block PRIVATE KEY`],
  ])("is refused: %s", (_, key, problem) => {
    expect(parse(verificationKeys, pemOf(key()))).toEqual(refused(problem));
    const behind = pemOf(ed25519.publicKey) + pemOf(key());
    expect(parse(verificationKeys, behind)).toEqual(refused(problem));
  });
});

describe("published keys", () => {
  let jwk: { kty: string; kid: string; n: string; e: string };
  beforeAll(() => {
    const { n = "", e = "" } = rsaKeys().publicKey.export({ format: "jwk" });
    jwk = { kty: "RSA", kid: "next", n, e };
  });
  const operations = "must be an array of operations with verify among them";
  const published = (...keys: readonly object[]) => parse(publishedKeys, JSON.stringify({ keys }));

  test("hold what verifying takes and nothing else", () => {
    const expected = { ...jwk, use: "sig", alg: "RS256" };
    expect(published(jwk)).toEqual({ value: [expected] });
    const more = { use: "sig", alg: "RS256", key_ops: ["verify"], x5c: ["AA"], note: "ours" };
    expect(published({ ...jwk, ...more })).toEqual({ value: [expected] });
    expect(published()).toEqual({ value: [] });
  });

  test.each(["d", "p", "q", "dp", "dq", "qi", "oth", "k"])("a private member is refused: %s", (member) => {
    const problem = `keys[0].${member} must not be there: the key is to be published and it is private`;
    expect(published({ ...jwk, [member]: "hunter2" })).toEqual(refused(problem));
  });

  test.each([
    ["another type", { kty: "EC" }, "keys[0].kty must be RSA"],
    ["no kid", { kid: undefined }, "keys[0].kid is missing"],
    ["an empty kid", { kid: "" }, "keys[0].kid must be 1 to 128 visible ASCII characters"],
    [
      "a kid of development mode",
      { kid: "dev-1" },
      "keys[0].kid must not be that of a key made by development mode",
    ],
    ["encryption", { use: "enc" }, "keys[0].use must be sig"],
    ["another algorithm", { alg: "none" }, "keys[0].alg must be RS256"],
    ["a number that is none", { n: "a+b" }, "keys[0].n must be a base64url number"],
    ["no modulus to speak of", { n: "AQAB" }, "keys[0] must be an RSA key of at least 2048 bits, but has 17"],
    [
      "a short modulus with zeros before it",
      { n: `${"A".repeat(340)}AQAB` },
      "keys[0] must be an RSA key of at least 2048 bits, but has 17",
    ],
    ["an even modulus", { n: Buffer.alloc(256, 0xfe).toString("base64url") }, `keys[0] ${even}`],
    ["operations that do not verify", { key_ops: ["sign"] }, `keys[0].key_ops ${operations}`],
    ["no operations", { key_ops: [] }, `keys[0].key_ops ${operations}`],
    ["operations that are no list", { key_ops: "verify" }, `keys[0].key_ops ${operations}`],
    [
      "exponent 3",
      { e: "Aw" },
      "keys[0] must be an RSA key whose exponent is odd and at least 65537, but has 3",
    ],
    [
      "an even exponent",
      { e: "AQAC" },
      "keys[0] must be an RSA key whose exponent is odd and at least 65537, but has 65538",
    ],
  ])("a key is refused: %s", (_, change, problem) => {
    expect(published({ ...jwk, ...change })).toEqual(refused(problem));
  });

  test("two of the same kid are refused", () => {
    expect(published(jwk, { ...jwk, kid: "a" }, jwk)).toEqual(refused("keys[2].kid is also that of keys[0]"));
  });

  test.each([
    ["null", "must be an object with the member keys"],
    ["[]", "must be an object with the member keys"],
    ["{}", "keys is missing"],
    ['{"keys":{}}', "keys must be an array of public RSA keys"],
    ['{"keys":[1]}', "keys[0] must be a JSON Web Key"],
    ['{"keys":[', "must be a JSON Web Key Set, but is not JSON"],
  ])("%s is no key set", (text, problem) => {
    expect(parse(publishedKeys, text)).toEqual(refused(problem));
  });
});

describe("keys that must agree", () => {
  const lines = (changes: Record<string, string>) => {
    const env = { ...productionEnv(), ...changes };
    return problemLines(() => readAuth(env));
  };

  test("the halves of the signing pair", async () => {
    const expected = ["RSA_PUBLIC_KEY does not belong to RSA_PRIVATE_KEY"];
    expect(await lines({ RSA_PUBLIC_KEY: pemOf(rsaKeys().publicKey) })).toEqual(expected);
  });

  test("the signing key's id and the published ones", async () => {
    const key = { ...rsaKeys().publicKey.export({ format: "jwk" }), kid: "2025-01" };
    expect(await lines({ RSA_PUBLISHED_KEYS: JSON.stringify({ keys: [key] }) })).toEqual([
      "RSA_KEY_ID must not be the kid of a key in RSA_PUBLISHED_KEYS",
    ]);
  });
});
