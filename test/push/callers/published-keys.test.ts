/** Which of an issuer's keys are used, and with which algorithms. All others are passed over. */
import { createHash, generateKeyPairSync, type JsonWebKey } from "node:crypto";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Callers, createCallers } from "../../../src/push/callers/callers.ts";
import { base64url } from "../../auth/tokens/forged-jwts.ts";
import { type CapturedLog, captureLog } from "../../support/captured-log.ts";
import { type MovableClock, movableClock } from "../../support/movable-clock.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Issuer, newKey, type SigningKey, startIssuer } from "./issuer.ts";

let issuer: Issuer;
let good: SigningKey;
const cleanup = suiteCleanup();
beforeAll(async () => {
  issuer = await startIssuer();
  cleanup.defer(() => issuer.stop());
  good = newKey("good");
});

let clock: MovableClock;
let log: CapturedLog;
let callers: Callers & { close(): void };
beforeEach(() => {
  clock = movableClock();
  log = captureLog();
  callers = createCallers({
    issuer: issuer.issuer,
    audience: undefined,
    userAppClientIds: ["app"],
    backofficeClientId: "office",
    introspection: undefined,
    clock,
    logger: log.logger,
  });
});
afterEach(() => callers.close());

const ask = (token: string) => callers.user(`Bearer ${token}`);
const token = (key: SigningKey, alg = "RS256") => issuer.token(key, clock.now(), {}, { alg });
const passedOver = () =>
  log.lines().flatMap(({ msg, kid, reason }) => (/passed over/.test(String(msg)) ? [[kid, reason]] : []));

const rsa = (modulusLength: number, publicExponent = 65_537) =>
  generateKeyPairSync("rsa", { modulusLength, publicExponent });
const padded = (n = "") =>
  Buffer.concat([Buffer.alloc(128), Buffer.from(n, "base64url")]).toString("base64url");

describe("a key that is unsafe, or cannot be used", () => {
  test.each<[string, (kid: string) => SigningKey, string]>([
    [
      "1024 bits",
      (kid) => newKey(kid, {}, rsa(1024)),
      "must be an RSA key of at least 2048 bits, but has 1024",
    ],
    [
      "1024 bits with zeros before them",
      (kid) => {
        const key = newKey(kid, {}, rsa(1024));
        return { ...key, jwk: { ...key.jwk, n: padded(String(key.jwk["n"])) } };
      },
      "must be an RSA key of at least 2048 bits, but has 1024",
    ],
    [
      "2047 bits",
      (kid) => newKey(kid, {}, rsa(2047)),
      "must be an RSA key of at least 2048 bits, but has 2047",
    ],
    [
      "exponent 3",
      (kid) => newKey(kid, {}, rsa(2048, 3)),
      "must be an RSA key whose exponent is odd and at least 65537, but has 3",
    ],
    [
      "an even exponent",
      (kid) => newKey(kid, { e: "AQAC" }),
      "must be an RSA key whose exponent is odd and at least 65537, but has 65538",
    ],
    [
      "an even modulus",
      (kid) => {
        const key = newKey(kid);
        const n = Buffer.from(String(key.jwk["n"]), "base64url");
        n[n.length - 1] = 2;
        return { ...key, jwk: { ...key.jwk, n: n.toString("base64url") } };
      },
      "must be an RSA key whose modulus is odd",
    ],
    ["a modulus that is a number", (kid) => newKey(kid, { n: 7 }), "cannot be decoded"],
    ["no modulus", (kid) => newKey(kid, { n: undefined }), "cannot be decoded"],
    [
      "a point that is not on its curve",
      (kid) => newKey(kid, { ...offCurve(), alg: "ES256" }),
      "cannot be decoded",
    ],
    ["alg none", (kid) => newKey(kid, { alg: "none" }), "must be a key for one of RS, PS and ES"],
    ["alg HS256", (kid) => newKey(kid, { alg: "HS256" }), "must be a key for one of RS, PS and ES"],
    [
      "the alg of another type",
      (kid) => newKey(kid, { alg: "ES256" }),
      "must be a key for one of RS, PS and ES",
    ],
    [
      "a symmetric key",
      (kid) => newKey(kid, { kty: "oct", k: "AAAA" }),
      "must be a key for one of RS, PS and ES",
    ],
  ])("is passed over, with one line of the log: %s", async (_, make, reason) => {
    const bad = make("bad");
    issuer.keys = [bad, good];
    for (let fetch = 0; fetch < 3; fetch += 1) {
      expect(await ask(token(bad))).toBeUndefined();
      expect(await ask(token(good))).toBeDefined();
      clock.move(310);
    }
    expect(passedOver()).toEqual([["bad", reason]]);
  });

  test("with exponent 1, by which anybody could sign without the private key, opens nothing", async () => {
    const open = newKey("open", { e: "AQ" });
    issuer.keys = [open, good];
    // What is signed, raised to the power of 1: the padded digest itself (RFC 8017 section 9.2).
    const [header = "", payload = ""] = token(open).split(".");
    const digest = createHash("sha256").update(`${header}.${payload}`).digest();
    const info = Buffer.concat([Buffer.from("3031300d060960864801650304020105000420", "hex"), digest]);
    const filling = Buffer.alloc(256 - 3 - info.length, 0xff);
    const signature = Buffer.concat([Buffer.from([0, 1]), filling, Buffer.from([0]), info]);
    expect(await ask(`${header}.${payload}.${base64url(signature)}`)).toBeUndefined();
    expect(passedOver()).toEqual([
      ["open", "must be an RSA key whose exponent is odd and at least 65537, but has 1"],
    ]);
  });

  test("of a kid that another key has is passed over, and so is the other", async () => {
    const [one, other] = [newKey("twice"), newKey("twice")];
    issuer.keys = [one, other, good];
    for (const key of [one, other]) expect(await ask(token(key))).toBeUndefined();
    expect(await ask(token(good))).toBeDefined();
    expect(passedOver()).toEqual([
      ["twice", "must not share its kid"],
      ["twice", "must not share its kid"],
    ]);
  });

  test("of no kid is passed over", async () => {
    issuer.keys = [newKey("nameless", { kid: undefined }), good];
    expect(await ask(token({ ...good, kid: "nameless" }))).toBeUndefined();
    expect(passedOver()).toEqual([[undefined, "must have a kid"]]);
  });
});

test("keys that are for something else are passed over in silence", async () => {
  const others = [newKey("encryption", { use: "enc" }), newKey("for-signing-only", { key_ops: ["sign"] })];
  others.push(newKey("operations-of-no-list", { key_ops: "verify" }));
  issuer.keys = [...others, good];
  for (const other of others) expect(await ask(token(other)), other.kid).toBeUndefined();
  expect(await ask(token(good))).toBeDefined();
  expect(passedOver()).toEqual([]);
});

describe("the algorithm", () => {
  const curves = { ES256: "P-256", ES384: "P-384", ES512: "P-521" };
  const ec = (namedCurve: string) => generateKeyPairSync("ec", { namedCurve });
  const all = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];

  test("of a token is that of the key", async () => {
    for (const alg of all) {
      const key = newKey(alg, { alg });
      issuer.keys = [key];
      clock.move(31);
      for (const used of all) expect((await ask(token(key, used))) !== undefined, used).toBe(used === alg);
    }
  });

  test("is any of its type where an RSA key names none", async () => {
    const key = newKey("any", { alg: undefined });
    issuer.keys = [key];
    for (const used of all) expect(await ask(token(key, used)), used).toBeDefined();
  });

  test.each(Object.entries(curves))(
    "%s is that of the curve %s, whether the key names it or not",
    async (alg, curve) => {
      const pair = ec(curve);
      issuer.keys = [newKey("named", { alg }, pair), newKey("unnamed", { alg: undefined }, pair)];
      for (const key of issuer.keys) {
        expect(await ask(token(key, alg)), key.kid).toBeDefined();
        for (const other of Object.keys(curves).filter((one) => one !== alg)) {
          expect(await ask(token(key, other)), other).toBeUndefined();
        }
      }
    },
  );
});

function offCurve(): JsonWebKey {
  const { y = "", ...rest } = generateKeyPairSync("ec", { namedCurve: "P-256" }).publicKey.export({
    format: "jwk",
  });
  return { ...rest, y: base64url(Buffer.from(y, "base64url").reverse()) };
}
