/** Credentials of the push providers: kinds of setting that accept only what the provider will accept. */
import { createECDH, createPrivateKey, ECDH } from "node:crypto";
import * as v from "valibot";
import { json, object, only, overlapping } from "../platform/settings/json.ts";
import { checked, type Environment, matching, must, refusing } from "../platform/settings/kinds.ts";
import { pemBlock, privateKeyLabels } from "../platform/settings/pem.ts";
import { secure, urlWithoutQuery } from "../platform/settings/urls.ts";

/** The members of a Google service account that are used. */
export interface ServiceAccount {
  readonly projectId: string;
  /** `kid` of the assertions. */
  readonly privateKeyId: string | undefined;
  /** PEM; RSA of at least 2048 bits. */
  readonly privateKey: string;
  readonly clientEmail: string;
  /** The token endpoint. */
  readonly tokenUri: string;
}

const visible = (most: number) => new RegExp(`^[\\x21-\\x7e]{1,${most}}$`);
const tokenUri = secure(urlWithoutQuery("an http or https URL without user, query and fragment"));

/** The id of a project of Google Cloud. */
export const projectId = matching("the id of a project", /^[a-z0-9:.-]{1,100}$/);

const strongRsa = "an unencrypted RSA key of at least 2048 bits";

/** JSON whose strings have line breaks, which a shell or a template made of their `\n`, with `\n` again. */
const withoutBreaks = v.pipe(
  v.string(),
  v.transform((text) => text.replace(/"(?:[^"\\]|\\.)*"/gs, (string) => string.replace(/\r?\n/g, "\\n"))),
);

const accountFile = (environment: Environment) =>
  object("an object", {
    type: v.optional(only("service_account")),
    project_id: projectId,
    private_key_id: v.optional(matching("1 to 128 visible ASCII characters", visible(128))),
    private_key: v.pipe(
      pemBlock(strongRsa, privateKeyLabels, (pem) => ({ pem, key: createPrivateKey(pem) })),
      refusing(({ key: { asymmetricKeyType: type, asymmetricKeyDetails } }) =>
        type === "rsa" && (asymmetricKeyDetails?.modulusLength ?? 0) >= 2048 ? undefined : must(strongRsa),
      ),
      v.transform(({ pem }) => pem),
    ),
    client_email: matching("an e-mail address", visible(320)),
    token_uri: tokenUri(environment),
  });

/** The service account that sends with FCM, from its JSON file. */
export const serviceAccount = (environment: Environment) =>
  v.pipe(
    withoutBreaks,
    json(
      "the JSON of a Google service account",
      v.pipe(
        accountFile(environment),
        v.transform(
          (file): ServiceAccount => ({
            projectId: file.project_id,
            privateKeyId: file.private_key_id,
            privateKey: file.private_key,
            clientEmail: file.client_email,
            tokenUri: file.token_uri,
          }),
        ),
      ),
    ),
  );

/** The key of an APNs provider token. */
export const apnsKey = v.pipe(
  pemBlock(
    "an unencrypted private EC P-256 key in PEM form, the .p8 file",
    ["PRIVATE KEY", "EC PRIVATE KEY"],
    (pem) => ({ pem, key: createPrivateKey(pem) }),
  ),
  refusing(({ key: { asymmetricKeyType: type, asymmetricKeyDetails } }) =>
    asymmetricKeyDetails?.namedCurve === "prime256v1"
      ? undefined
      : `must be an EC P-256 key, but is of type ${type}`,
  ),
  v.transform(({ pem }) => pem),
);

/** A private VAPID key (RFC 8292), and its public half as it is sent. */
export type VapidKey = ReturnType<typeof vapidKeyOf>;

/** @throws for what is no private key of P-256 */
export function vapidKeyOf(d: string) {
  const ecdh = createECDH("prime256v1");
  ecdh.setPrivateKey(d, "base64url");
  const point = ecdh.getPublicKey();
  const [x, y] = [point.toString("base64url", 1, 33), point.toString("base64url", 33)];
  const key = { kty: "EC", crv: "P-256", x, y, d };
  return { privateKey: createPrivateKey({ key, format: "jwk" }), publicKey: point.toString("base64url") };
}

const vapidPrivateKey = checked("a P-256 private key: 32 bytes in base64url", (key) => {
  try {
    return /^[\w-]{43}$/.test(key) && vapidKeyOf(key) !== undefined;
  } catch {
    return false;
  }
});

/** The private VAPID key, encoded as tools print it, or two. */
export const vapidKeys = (environment: Environment) =>
  v.pipe(
    overlapping(() => vapidPrivateKey)(environment),
    v.transform((keys) => keys.map(vapidKeyOf)),
  );

/** The public VAPID key, encoded as browsers take it. */
export const vapidPublicKey = checked(
  "a P-256 public key: an uncompressed point of 65 bytes in base64url",
  (key) => isUncompressedPoint(Buffer.from(/^[\w-]{87}$/.test(key) ? key : "", "base64url")),
);

/** Whether these are the 65 bytes of a point that lies on P-256 (SEC 1 section 2.3.4). */
export function isUncompressedPoint(bytes: Uint8Array): boolean {
  if (bytes.length !== 65 || bytes[0] !== 4) return false;
  try {
    ECDH.convertKey(bytes, "prime256v1");
    return true;
  } catch {
    return false;
  }
}
