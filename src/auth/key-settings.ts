/**
 * Keys as an operator sets them: kinds of setting that take only keys which are safe to sign and verify
 * with. Values are PEM texts in the one form (PKCS #8, SPKI), whatever form they came in.
 */
import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from "node:crypto";
import { json } from "../platform/settings/json.ts";
import {
  generatedPrefix,
  matching,
  type SettingKind,
  stricterInProduction,
} from "../platform/settings/kinds.ts";
import { pemBlock, privateKeyLabels } from "../platform/settings/pem.ts";

/** A public RSA key of the key set (RFC 7517, RFC 7518 section 6.3.1), beside the one that signs. */
export interface PublishedKey {
  readonly kty: "RSA";
  readonly kid: string;
  /** Modulus and exponent, base64url. */
  readonly n: string;
  readonly e: string;
  readonly use: "sig";
  readonly alg: "RS256";
}

/** Why an RSA key is not taken; a phrase that follows the setting's name. */
function weaknessOf(key: KeyObject): string | undefined {
  if (key.asymmetricKeyType !== "rsa") return `must be an RSA key, but is of type ${key.asymmetricKeyType}`;
  const { modulusLength = 0, publicExponent = 0n } = key.asymmetricKeyDetails ?? {};
  if (modulusLength < 2048 || modulusLength > 4096) {
    return `must be an RSA key of 2048 to 4096 bits, but has ${modulusLength}`;
  }
  if (publicExponent < 65_537n || publicExponent % 2n === 0n) {
    return `must be an RSA key whose exponent is odd and at least 65537, but has ${publicExponent}`;
  }
  return undefined;
}

function spki(key: KeyObject): string {
  return key.export({ type: "spki", format: "pem" }).toString();
}

/** A private RSA key; the value is PKCS #8. */
export const signingPrivateKey: SettingKind<string> = pemBlock(
  "an unencrypted private RSA key in PEM form",
  privateKeyLabels,
  (pem) => {
    const key = createPrivateKey(pem);
    const weakness = weaknessOf(key);
    if (weakness) return { problems: [weakness] };
    const probe = Buffer.from("probe");
    if (!verify("sha256", probe, createPublicKey(key), sign("sha256", probe, key))) {
      return { problems: ["must be a private key whose numbers belong together"] };
    }
    return { value: key.export({ type: "pkcs8", format: "pem" }).toString() };
  },
);

/** A public RSA key; the value is SPKI. */
export const signingPublicKey: SettingKind<string> = pemBlock(
  "a public RSA key in PEM form",
  ["PUBLIC KEY", "RSA PUBLIC KEY"],
  (pem) => {
    const key = createPublicKey(pem);
    const weakness = weaknessOf(key);
    return weakness ? { problems: [weakness] } : { value: spki(key) };
  },
);

/** The public key of OTP proofs: RSA, EC P-256 or Ed25519; the value is SPKI. */
export const otpPublicKey: SettingKind<string> = pemBlock(
  "a public key (RSA, EC P-256 or Ed25519) in PEM form",
  ["PUBLIC KEY", "RSA PUBLIC KEY"],
  (pem) => {
    const key = createPublicKey(pem);
    const type = key.asymmetricKeyType;
    const isCurve = type === "ed25519" || key.asymmetricKeyDetails?.namedCurve === "prime256v1";
    if (isCurve) return { value: spki(key) };
    if (type !== "rsa")
      return { problems: [`must be an RSA, EC P-256 or Ed25519 key, but is of type ${type}`] };
    const weakness = weaknessOf(key);
    return weakness ? { problems: [weakness] } : { value: spki(key) };
  },
);

/** Whether two keys in PEM form are the halves of one pair. */
export function isKeyPair(privateKey: string, publicKey: string): boolean {
  return createPublicKey(createPrivateKey(privateKey)).equals(createPublicKey(publicKey));
}

const idForm = /^[\x21-\x7e]{1,128}$/;
const idExpects = "1 to 128 visible ASCII characters";

/** The `kid` of a key. */
export const keyId = stricterInProduction(matching(idExpects, idForm), (id) =>
  id.startsWith(generatedPrefix) ? "must not be that of a key made by development mode" : undefined,
);

interface Jwks {
  readonly keys: readonly (Omit<PublishedKey, "use" | "alg"> & { readonly [member: string]: unknown })[];
}

function weaknessOfJwk({ kty, n, e }: Jwks["keys"][number]): string | undefined {
  try {
    return weaknessOf(createPublicKey({ key: { kty, n, e }, format: "jwk" }));
  } catch {
    return "must be an RSA key, but cannot be decoded";
  }
}

/** RFC 7518 section 6.3.2, and `k` of section 6.4. */
const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
const number = { type: "string", pattern: "^[A-Za-z0-9_-]+$", description: "a base64url number" };

const jwks = json<Jwks>(
  "a JSON Web Key Set",
  {
    type: "object",
    description: "an object with the member keys",
    required: ["keys"],
    properties: {
      keys: {
        type: "array",
        description: "an array of public RSA keys",
        items: {
          type: "object",
          description: "a JSON Web Key",
          required: ["kty", "kid", "n", "e"],
          properties: {
            kty: { const: "RSA", description: "RSA" },
            kid: { type: "string", pattern: idForm.source, description: idExpects },
            n: number,
            e: number,
            use: { const: "sig", description: "sig" },
            alg: { const: "RS256", description: "RS256" },
          },
        },
      },
    },
  },
  ({ keys }, environment) => {
    const ids = keys.map(({ kid }) => kid);
    return keys.flatMap((key, index) => {
      const at = `keys[${index}]`;
      const secret = privateMembers.find((member) => Object.hasOwn(key, member));
      if (secret) return [`${at}.${secret} must not be there: the key is to be published and it is private`];
      const parsed = keyId.parse(key.kid, environment);
      if ("problems" in parsed) return parsed.problems.map((problem) => `${at}.kid ${problem}`);
      if (ids.indexOf(key.kid) !== index) return [`${at}.kid is also that of keys[${ids.indexOf(key.kid)}]`];
      const weakness = weaknessOfJwk(key);
      return weakness ? [`${at} ${weakness}`] : [];
    });
  },
);

/** A key set of public RSA keys; members that do not concern verifying are dropped. */
export const publishedKeys: SettingKind<readonly PublishedKey[]> = {
  ...jwks,
  parse: (text, environment) => {
    const parsed = jwks.parse(text, environment);
    if ("problems" in parsed) return parsed;
    return {
      value: parsed.value.keys.map(({ kty, kid, n, e }) => ({ kty, kid, n, e, use: "sig", alg: "RS256" })),
    };
  },
};
