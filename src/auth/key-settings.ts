/**
 * Keys as an operator sets them: kinds of setting that accept only safe ones. The values are PEM texts: PKCS #8 or
 * SPKI.
 */
import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import * as v from "valibot";
import { isOfDevelopment, rsaWeakness } from "../platform/crypto/rsa.ts";
import { differingIn, json, object, only } from "../platform/settings/json.ts";
import {
  type Environment,
  generatedPrefix,
  matching,
  must,
  refusing,
  stricterInProduction,
} from "../platform/settings/kinds.ts";
import { pemBlock, pemBlocks, privateKeyLabels } from "../platform/settings/pem.ts";

/** A further public RSA key of the key set (RFC 7517, RFC 7518 section 6.3.1), not the one that signs. */
export interface PublishedKey {
  readonly kty: "RSA";
  readonly kid: string;
  /** Modulus and exponent, base64url. */
  readonly n: string;
  readonly e: string;
  readonly use: "sig";
  readonly alg: "RS256";
}

/** The public key as a member of the key set. */
export function publishedKey(key: KeyObject, kid: string): PublishedKey {
  const { n = "", e = "" } = key.export({ format: "jwk" });
  return { kty: "RSA", kid, n, e, use: "sig", alg: "RS256" };
}

/** Refuses keys with which each signature would take too long. */
const quick = refusing((key: KeyObject) => {
  const bits = key.asymmetricKeyDetails?.modulusLength ?? 0;
  return bits > 4096 ? `must be an RSA key of at most 4096 bits, but has ${bits}` : undefined;
});

/** Whether the numbers of a private key are consistent: what the key signs must verify. */
function isUsable(key: KeyObject): boolean {
  const probe = Buffer.from("probe");
  try {
    return verify("sha256", probe, createPublicKey(key), sign("sha256", probe, key));
  } catch {
    return false;
  }
}

/** Writes the key as PEM: PKCS #8 or SPKI. */
const pemOf = (key: KeyObject) =>
  key.export({ type: key.type === "private" ? "pkcs8" : "spki", format: "pem" }).toString();

const publicKeyLabels = ["PUBLIC KEY", "RSA PUBLIC KEY"] as const;

const madeByDevelopment = (key: KeyObject) =>
  isOfDevelopment(key) ? "must not be a key made by development mode" : undefined;

/** A private RSA key; the value is PKCS #8. */
export const signingPrivateKey = (environment: Environment) =>
  v.pipe(
    stricterInProduction(
      v.pipe(
        pemBlock("an unencrypted private RSA key in PEM form", privateKeyLabels, createPrivateKey),
        refusing(rsaWeakness),
        quick,
        v.check(isUsable, "must be a private key whose numbers belong together"),
      ),
      madeByDevelopment,
    )(environment),
    v.transform(pemOf),
  );

/** A public RSA key; the value is SPKI. */
export const signingPublicKey = v.pipe(
  pemBlock("a public RSA key in PEM form", publicKeyLabels, createPublicKey),
  refusing(rsaWeakness),
  quick,
  v.transform(pemOf),
);

/** Why the key must not verify JWTs of others; undefined if it may. */
function verificationKeyFault(key: KeyObject, environment: Environment): string | undefined {
  const { asymmetricKeyType: type, asymmetricKeyDetails } = key;
  if (type === "ed25519" || asymmetricKeyDetails?.namedCurve === "prime256v1") return undefined;
  if (type !== "rsa") return `must be an RSA, EC P-256 or Ed25519 key, but is of type ${type}`;
  return rsaWeakness(key) ?? (environment === "production" ? madeByDevelopment(key) : undefined);
}

/** Public keys of JWTs that others sign, each RSA, EC P-256 or Ed25519; the values are SPKI. */
export const verificationKeys = (environment: Environment) =>
  v.pipe(
    pemBlocks("public keys (RSA, EC P-256 or Ed25519) in PEM form", publicKeyLabels, (pems) =>
      pems.map((pem) => createPublicKey(pem)),
    ),
    refusing((keys) =>
      keys.map((key) => verificationKeyFault(key, environment)).find((why) => why !== undefined),
    ),
    v.transform((keys) => keys.map(pemOf)),
  );

/** Whether two keys in PEM form are the halves of one pair. */
export function isKeyPair(privateKey: string, publicKey: string): boolean {
  return createPublicKey(createPrivateKey(privateKey)).equals(createPublicKey(publicKey));
}

/** The `kid` of a key. */
export const keyId = stricterInProduction(
  matching("1 to 128 visible ASCII characters", /^[\x21-\x7e]{1,128}$/),
  (id) => (id.startsWith(generatedPrefix) ? "must not be that of a key made by development mode" : undefined),
);

/** RFC 7518 section 6.3.2, and `k` of section 6.4. */
const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
const number = matching("a base64url number", /^[A-Za-z0-9_-]+$/);

const operationsExpects = "an array of operations with verify among them";

const jwkShape = (environment: Environment) =>
  v.pipe(
    object("a JSON Web Key", {
      kty: only("RSA"),
      kid: keyId(environment),
      n: number,
      e: number,
      use: v.optional(only("sig")),
      alg: v.optional(only("RS256")),
      /** RFC 7517 section 4.3. */
      key_ops: v.optional(
        v.pipe(
          v.array(v.unknown(), must(operationsExpects)),
          v.check((operations) => operations.includes("verify"), must(operationsExpects)),
        ),
      ),
    }),
    refusing(({ kty, n, e }) => {
      try {
        const key = createPublicKey({ key: { kty, n, e }, format: "jwk" });
        return rsaWeakness(key) ?? (environment === "production" ? madeByDevelopment(key) : undefined);
      } catch {
        return "must be an RSA key, but cannot be decoded";
      }
    }),
    v.transform(({ kid, kty, n, e }) =>
      publishedKey(createPublicKey({ key: { kty, n, e }, format: "jwk" }), kid),
    ),
  );

/** Runs before all other checks, because the operator must learn of it: the key may have been published already. */
const hasNoPrivateMember = v.rawCheck<unknown>(({ dataset: { value }, addIssue }) => {
  if (typeof value !== "object" || value === null) return;
  const key = privateMembers.find((member) => Object.hasOwn(value, member));
  if (key === undefined) return;
  const message = "must not be there: the key is to be published and it is private";
  addIssue({ message, path: [{ type: "unknown", origin: "key", input: value, key, value: undefined }] });
});

/** A key set of public RSA keys; members that verification does not need are dropped. */
export const publishedKeys = (environment: Environment) =>
  json(
    "a JSON Web Key Set",
    v.pipe(
      object("an object with the member keys", {
        keys: v.array(
          v.pipe(v.unknown(), hasNoPrivateMember, jwkShape(environment)),
          must("an array of public RSA keys"),
        ),
      }),
      v.transform(({ keys }) => keys),
      differingIn<PublishedKey>("kid", "keys"),
    ),
  );
