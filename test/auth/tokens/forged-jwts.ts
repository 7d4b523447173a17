/** JWTs of an attacker, and JWTs that a genuine signer must not make. Made by hand: a JOSE library would refuse. */
import {
  createHmac,
  createPublicKey,
  createSecretKey,
  generateKeyPairSync,
  type KeyObject,
  constants as rsa,
  sign as signBytes,
  X509Certificate,
} from "node:crypto";
import { CompactEncrypt } from "jose";
import { localhostCertificate } from "../../support/localhost-certificate.ts";

/** A JSON value, or a text that no value is serialised to. */
type Json = object | string;

/** The parts of a genuine token. */
export interface Genuine {
  readonly privateKey: KeyObject;
  readonly header: { readonly alg: string; readonly typ: string; readonly kid?: string };
  /** New claims at each call. */
  claims(): Record<string, unknown>;
  /** URL of a listener that must not get a request. */
  readonly listener: string;
}

/** Makes one hostile token. */
export type Forge = (genuine: Genuine) => string | Promise<string>;

export function base64url(value: Json | Buffer): string {
  if (Buffer.isBuffer(value)) return value.toString("base64url");
  return Buffer.from(typeof value === "string" ? value : JSON.stringify(value)).toString("base64url");
}

/** Signs with the algorithm `alg`, independent of the header of the token. */
function signature(input: string, key: KeyObject, alg: string): Buffer {
  const data = Buffer.from(input);
  const hash = `sha${alg.slice(2)}`;
  if (alg.startsWith("HS")) return createHmac(hash, key).update(data).digest();
  if (alg.startsWith("PS")) {
    const padding = rsa.RSA_PKCS1_PSS_PADDING;
    return signBytes(hash, data, { key, padding, saltLength: rsa.RSA_PSS_SALTLEN_DIGEST });
  }
  if (alg.startsWith("ES")) return signBytes(hash, data, { key, dsaEncoding: "ieee-p1363" });
  return signBytes(alg.startsWith("RS") ? hash : null, data, key);
}

/** A compact JWS over exactly these texts. */
export function compact(header: Json | Buffer, payload: Json | Buffer, key: KeyObject, alg: string): string {
  const input = `${base64url(header)}.${base64url(payload)}`;
  return `${input}.${signature(input, key, alg).toString("base64url")}`;
}

/** A genuine token with these changes. */
export function genuinely(
  { privateKey, header, claims }: Genuine,
  change: { header?: object; claims?: object; headerText?: string; payloadText?: string | Buffer } = {},
): string {
  return compact(
    change.headerText ?? { ...header, ...change.header },
    change.payloadText ?? { ...claims(), ...change.claims },
    privateKey,
    header.alg,
  );
}

/** A key of the attacker, of the same type as the genuine one. */
function attackersKey({ header }: Genuine): KeyObject {
  if (header.alg === "ES256") return generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
  if (header.alg === "EdDSA") return generateKeyPairSync("ed25519").privateKey;
  return generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey;
}

function attackers(genuine: Genuine, header: (key: KeyObject) => object): string {
  const key = attackersKey(genuine);
  return compact({ ...genuine.header, ...header(key) }, genuine.claims(), key, genuine.header.alg);
}

/** HS256 under a value that is public. */
function symmetric(genuine: Genuine, secret: Buffer | string, header: object = {}): string {
  const key = createSecretKey(Buffer.from(secret));
  return compact({ ...genuine.header, alg: "HS256", ...header }, genuine.claims(), key, "HS256");
}

function publicPem({ privateKey }: Genuine): string {
  return createPublicKey(privateKey).export({ type: "spki", format: "pem" }).toString();
}

function withoutSignature(header: object, genuine: Genuine): string {
  const signed = genuinely(genuine);
  return `${base64url(header)}.${base64url(genuine.claims())}.${signed.slice(signed.lastIndexOf(".") + 1)}`;
}

function parts(token: string): [header: string, payload: string, signature: string] {
  const [header = "", payload = "", signed = ""] = token.split(".");
  return [header, payload, signed];
}

/** The same signature in another spelling: the unused bits of its last character differ. */
function respelled(token: string): string {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  return token.slice(0, -1) + alphabet[alphabet.indexOf(token.slice(-1)) ^ 1];
}

const deep = (levels: number) => `${"[".repeat(levels)}${"]".repeat(levels)}`;
const seconds = () => Math.floor(Date.now() / 1000);

const none: Record<string, Forge> = Object.fromEntries(
  ["none", "None", "NONE", "nOnE", "", null, 0, undefined, ["RS256"]].flatMap((alg): [string, Forge][] => [
    [
      `alg ${JSON.stringify(alg)} without a signature`,
      ({ header, claims }) => `${base64url({ ...header, alg })}.${base64url(claims())}.`,
    ],
    [
      `alg ${JSON.stringify(alg)} with a signature`,
      (genuine) => withoutSignature({ ...genuine.header, alg }, genuine),
    ],
  ]),
);

const keys: Record<string, Forge> = {
  "HS256 under the public key in PEM form": (genuine) => symmetric(genuine, publicPem(genuine)),
  "HS256 under the public key in PEM form without its last line break": (genuine) =>
    symmetric(genuine, publicPem(genuine).trim()),
  "HS256 under the public key in DER form": (genuine) =>
    symmetric(genuine, createPublicKey(genuine.privateKey).export({ type: "spki", format: "der" })),
  "HS256 under the public key as a JWK": (genuine) =>
    symmetric(genuine, JSON.stringify(createPublicKey(genuine.privateKey).export({ format: "jwk" }))),
  "HS256 under an empty key": (genuine) => symmetric(genuine, ""),
  "HS256 under an empty key, with a kid that is an empty file": (genuine) =>
    symmetric(genuine, "", { kid: "../../../../../dev/null" }),
  "HS256 under its own kid": (genuine) => symmetric(genuine, "secret", { kid: "secret" }),
  "another key": (genuine) => attackers(genuine, () => ({})),
  "another key, embedded": (genuine) =>
    attackers(genuine, (key) => ({ jwk: createPublicKey(key).export({ format: "jwk" }) })),
  "another key, embedded, without a kid": (genuine) =>
    attackers(genuine, (key) => ({ jwk: createPublicKey(key).export({ format: "jwk" }), kid: undefined })),
  "another key, at a jku": (genuine) => attackers(genuine, () => ({ jku: `${genuine.listener}/jwks` })),
  "another key, at a jku and under a kid of its own": (genuine) =>
    attackers(genuine, () => ({ jku: `${genuine.listener}/jwks`, kid: "theirs" })),
  "another key, at an x5u": (genuine) => attackers(genuine, () => ({ x5u: `${genuine.listener}/cert` })),
  "another key, at a kid that is a URL": (genuine) => attackers(genuine, () => ({ kid: genuine.listener })),
  "another key, in an x5c": ({ header, claims }) => {
    const certificate = new X509Certificate(localhostCertificate.cert).raw.toString("base64");
    const key = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
    return compact({ ...header, alg: "ES256", x5c: [certificate] }, claims(), key, "ES256");
  },
  "another key's type": ({ header, claims }) => {
    const { privateKey } = generateKeyPairSync("ed25519");
    return compact({ ...header, alg: "Ed25519" }, claims(), privateKey, "Ed25519");
  },
  "a signature of zeros": ({ header, claims }) =>
    `${base64url(header)}.${base64url(claims())}.${base64url(Buffer.alloc(64))}`,
  "a signature of 256 zeros": ({ header, claims }) =>
    `${base64url(header)}.${base64url(claims())}.${base64url(Buffer.alloc(256))}`,
  "the signature of another token": (genuine) => withoutSignature(genuine.header, genuine),
  "other claims under a good signature": (genuine) => {
    const [header, , signed] = parts(genuinely(genuine));
    return `${header}.${base64url({ ...genuine.claims(), sub: "admin" })}.${signed}`;
  },
};

/** Other algorithms in the header, with a signature of that algorithm if the key can make one. */
const algorithms: Record<string, Forge> = Object.fromEntries(
  ["RS384", "RS512", "PS256", "PS384", "PS512", "ES384", "ES512", "ES256K", "Ed25519", "Ed448"].map((alg) => [
    `${alg} of the same key`,
    (genuine: Genuine) =>
      genuine.header.alg === "RS256" && /^[RP]S/.test(alg)
        ? compact({ ...genuine.header, alg }, genuine.claims(), genuine.privateKey, alg)
        : genuinely(genuine, { header: { alg } }),
  ]),
);

const headers: Record<string, Forge> = {
  "an algorithm that does not exist": (genuine) => genuinely(genuine, { header: { alg: "XX256" } }),
  "the algorithm in lower case": (genuine) =>
    genuinely(genuine, { header: { alg: genuine.header.alg.toLowerCase() } }),
  "an unknown crit": (genuine) => genuinely(genuine, { header: { crit: ["exp2"], exp2: 1 } }),
  "a crit that names what is not there": (genuine) => genuinely(genuine, { header: { crit: ["exp2"] } }),
  "an empty crit": (genuine) => genuinely(genuine, { header: { crit: [] } }),
  "a crit that is no list": (genuine) => genuinely(genuine, { header: { crit: "b64", b64: true } }),
  "a crit of numbers": (genuine) => genuinely(genuine, { header: { crit: [1] } }),
  "a crit of null": (genuine) => genuinely(genuine, { header: { crit: null } }),
  "b64 false, signed over the payload as it stands": ({ privateKey, header, claims }) => {
    const payload = base64url(claims());
    const encoded = base64url({ ...header, b64: false, crit: ["b64"] });
    const signed = signature(`${encoded}.${Buffer.from(payload, "base64url")}`, privateKey, header.alg);
    return `${encoded}.${payload}.${base64url(signed)}`;
  },
  "b64 false, signed over its encoding": (genuine) =>
    genuinely(genuine, { header: { b64: false, crit: ["b64"] } }),
  "b64 false without a crit": (genuine) => genuinely(genuine, { header: { b64: false } }),
  "the algorithm twice": (genuine) => {
    const text = JSON.stringify(genuine.header);
    return genuinely(genuine, { headerText: text.replace("{", '{"alg":"none",') });
  },
  "the algorithm in a __proto__": (genuine) => {
    const { alg: _alg, ...rest } = genuine.header;
    const text = JSON.stringify(rest).replace("{", `{"__proto__":${JSON.stringify(genuine.header)},`);
    return genuinely(genuine, { headerText: text });
  },
  "a header that is null": (genuine) => genuinely(genuine, { headerText: "null" }),
  "a header that is a list": (genuine) => genuinely(genuine, { headerText: "[]" }),
  "a header that is not JSON": (genuine) => genuinely(genuine, { headerText: "{alg:RS256}" }),
  "a header that is empty": (genuine) => genuinely(genuine, { headerText: "" }),
  "a header with more after it": (genuine) =>
    genuinely(genuine, { headerText: `${JSON.stringify(genuine.header)}{}` }),
  "a deep header": (genuine) =>
    genuinely(genuine, { headerText: JSON.stringify(genuine.header).replace("}", `,"a":${deep(2000)}}`) }),
};

const forms: Record<string, Forge> = {
  "one part": (genuine) => parts(genuinely(genuine))[0],
  "two parts": (genuine) => parts(genuinely(genuine)).slice(0, 2).join("."),
  "no signature": (genuine) => `${parts(genuinely(genuine)).slice(0, 2).join(".")}.`,
  "no payload": (genuine) => parts(genuinely(genuine)).toSpliced(1, 1, "").join("."),
  "no header": (genuine) => parts(genuinely(genuine)).toSpliced(0, 1, "").join("."),
  "a missing dot": (genuine) => genuinely(genuine).replace(".", ""),
  "an extra dot at the end": (genuine) => `${genuinely(genuine)}.`,
  "an extra dot at the beginning": (genuine) => `.${genuinely(genuine)}`,
  "an extra dot in the middle": (genuine) => genuinely(genuine).replace(".", ".."),
  "a fourth part": (genuine) => `${genuinely(genuine)}.e30`,
  dots: () => "..",
  "padding at the end": (genuine) => `${genuinely(genuine)}=`,
  "padding in its right place": (genuine) =>
    parts(genuinely(genuine))
      .map((part) => part.padEnd(Math.ceil(part.length / 4) * 4, "="))
      .join("."),
  "a space at the end": (genuine) => `${genuinely(genuine)} `,
  "a space at the beginning": (genuine) => ` ${genuinely(genuine)}`,
  "a space inside": (genuine) => genuinely(genuine).replace(".", " ."),
  "a line break at the end": (genuine) => `${genuinely(genuine)}\n`,
  "a line break inside the signature": (genuine) => genuinely(genuine).replace(/(.{9})$/, "\r\n$1"),
  "the scheme in front": (genuine) => `Bearer ${genuinely(genuine)}`,
  "quotes around": (genuine) => `"${genuinely(genuine)}"`,
  "the signature in base64": (genuine) => {
    const [header, payload, signed] = parts(genuinely(genuine));
    return `${header}.${payload}.${Buffer.from(signed, "base64url").toString("base64")}`;
  },
  "the signature in another spelling": (genuine) => respelled(genuinely(genuine)),
  "one byte more in the signature": (genuine) => `${genuinely(genuine)}AA`,
  "one byte less in the signature": (genuine) => genuinely(genuine).slice(0, -2),
  "flattened JSON serialisation": (genuine) => {
    const [header, payload, signed] = parts(genuinely(genuine));
    return JSON.stringify({ protected: header, payload, signature: signed });
  },
  "general JSON serialisation": (genuine) => {
    const [header, payload, signed] = parts(genuinely(genuine));
    return JSON.stringify({ payload, signatures: [{ protected: header, signature: signed }] });
  },
  "a JWE to the key": ({ privateKey, header, claims }) => {
    const alg = header.alg === "RS256" ? "RSA-OAEP-256" : "dir";
    const key = alg === "dir" ? createSecretKey(Buffer.alloc(32)) : createPublicKey(privateKey);
    return new CompactEncrypt(Buffer.from(JSON.stringify(claims())))
      .setProtectedHeader({ alg, enc: "A256GCM" })
      .encrypt(key);
  },
  "text outside of ASCII": () => "ключ.鍵.🔑",
  SQL: () => "' or 1=1; drop table auth.authorizations; --",
};

const payloads: Record<string, Forge> = {
  "no exp": (genuine) => genuinely(genuine, { claims: { exp: undefined } }),
  "an exp of null": (genuine) => genuinely(genuine, { claims: { exp: null } }),
  "an exp that is text": (genuine) => genuinely(genuine, { claims: { exp: String(seconds() + 300) } }),
  "an exp of 1e308": (genuine) => genuinely(genuine, { claims: { exp: 1e308 } }),
  "an exp of 1e999": (genuine) => {
    const text = JSON.stringify({ ...genuine.claims(), exp: 0 }).replace('"exp":0', '"exp":1e999');
    return genuinely(genuine, { payloadText: text });
  },
  "an exp that is past": (genuine) => genuinely(genuine, { claims: { exp: seconds() - 1 } }),
  // By the clock of who judges it, which may stand still.
  "an exp that is now": (genuine) => genuinely(genuine, { claims: { exp: genuine.claims()["iat"] } }),
  "an exp of -1": (genuine) => genuinely(genuine, { claims: { exp: -1 } }),
  "an exp in a list": (genuine) => genuinely(genuine, { claims: { exp: [seconds() + 300] } }),
  "an exp in a __proto__": (genuine) => {
    const { exp, ...rest } = genuine.claims();
    const text = JSON.stringify(rest).replace("{", `{"__proto__":{"exp":${exp}},`);
    return genuinely(genuine, { payloadText: text });
  },
  "an nbf in the future": (genuine) => genuinely(genuine, { claims: { nbf: seconds() + 100 } }),
  "an nbf that is text": (genuine) => genuinely(genuine, { claims: { nbf: String(seconds()) } }),
  "an iat in the future": (genuine) => genuinely(genuine, { claims: { iat: seconds() + 100 } }),
  "an iat that is text": (genuine) => genuinely(genuine, { claims: { iat: String(seconds()) } }),
  "no iss": (genuine) => genuinely(genuine, { claims: { iss: undefined } }),
  "an iss with a slash at its end": (genuine) =>
    genuinely(genuine, { claims: { iss: `${genuine.claims()["iss"]}/` } }),
  "an iss in upper case": (genuine) =>
    genuinely(genuine, { claims: { iss: String(genuine.claims()["iss"]).toUpperCase() } }),
  "a list of iss": (genuine) => genuinely(genuine, { claims: { iss: [genuine.claims()["iss"]] } }),
  "no jti": (genuine) => genuinely(genuine, { claims: { jti: undefined } }),
  "an empty jti": (genuine) => genuinely(genuine, { claims: { jti: "" } }),
  "a jti that is a number": (genuine) => genuinely(genuine, { claims: { jti: 1 } }),
  "two exp, the last one good": (genuine) => {
    const text = JSON.stringify(genuine.claims());
    return genuinely(genuine, { payloadText: text.replace("{", '{"exp":1,') });
  },
  "two exp, one of them escaped": (genuine) => {
    const text = JSON.stringify(genuine.claims());
    return genuinely(genuine, { payloadText: text.replace("{", '{"\\u0065xp":1,') });
  },
  "claims that are null": (genuine) => genuinely(genuine, { payloadText: "null" }),
  "claims that are a list": (genuine) =>
    genuinely(genuine, { payloadText: JSON.stringify([genuine.claims()]) }),
  "claims that are text": (genuine) => genuinely(genuine, { payloadText: '"claims"' }),
  "claims that are not JSON": (genuine) => genuinely(genuine, { payloadText: "sub=admin" }),
  "claims that are not UTF-8": (genuine) =>
    genuinely(genuine, { payloadText: Buffer.from([0x7b, 0xff, 0x7d]) }),
  "claims that are 2000 levels deep": (genuine) => genuinely(genuine, { payloadText: deep(2000) }),
};

/** Hostile tokens, by their fault. Each must be refused as an access token and as an OTP proof. */
export const forgedJwts: Readonly<Record<string, Forge>> = {
  ...none,
  ...keys,
  ...algorithms,
  ...headers,
  ...forms,
  ...payloads,
};
