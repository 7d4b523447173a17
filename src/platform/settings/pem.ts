/**
 * Kinds of setting that hold PEM text (RFC 7468): certificates and keys. None of them is ever quoted.
 */
import { createPrivateKey, X509Certificate } from "node:crypto";
import type { Parsed, SettingKind } from "./kinds.ts";

const block = /-----BEGIN ([A-Z0-9 ]+)-----(?:(?!-----)[\s\S])*-----END \1-----/g;

/**
 * PEM blocks; line breaks may be written as the two characters `\n`.
 *
 * @param expects as in "a public key in PEM form"
 * @param labels the labels that are taken, as in "PUBLIC KEY"
 * @param decode the blocks, at least one, with real line breaks, to the value; whatever it throws means "no"
 */
function pemBlocks<T>(
  expects: string,
  labels: readonly string[],
  decode: (blocks: readonly string[]) => Parsed<T>,
): SettingKind<T> {
  return {
    expects,
    quotable: false,
    parse: (text) => {
      const lines = text.replaceAll("\\n", "\n").replaceAll("\r\n", "\n");
      const found = [...lines.matchAll(block)];
      const first = found[0];
      if (first === undefined) return { problems: [`must be ${expects}, but holds no whole PEM block`] };
      const foreign = found.find(([, label]) => label === undefined || !labels.includes(label));
      if (foreign) return { problems: [`must be ${expects}, but holds a block ${foreign[1]}`] };
      try {
        return decode(found.map(([whole]) => `${whole}\n`));
      } catch {
        return { problems: [`must be ${expects}, but its ${first[1]} cannot be decoded`] };
      }
    },
  };
}

/**
 * Exactly one PEM block.
 *
 * @param expects as in "a public key in PEM form"
 * @param labels the labels that are taken, as in "PUBLIC KEY"
 * @param decode the block with real line breaks to the value; whatever it throws means "no"
 */
export function pemBlock<T>(
  expects: string,
  labels: readonly string[],
  decode: (pem: string) => Parsed<T>,
): SettingKind<T> {
  return pemBlocks(expects, labels, ([pem, ...others]) =>
    pem === undefined || others.length > 0
      ? { problems: [`must be ${expects}, but holds ${others.length + 1} PEM blocks`] }
      : decode(pem),
  );
}

/** The labels of unencrypted private keys: PKCS #8, PKCS #1, SEC 1. */
export const privateKeyLabels = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] as const;

/** A private key of any algorithm; the value is its PEM. */
export const privateKeyPem: SettingKind<string> = pemBlock(
  "an unencrypted private key in PEM form",
  privateKeyLabels,
  (pem) => {
    createPrivateKey(pem);
    return { value: pem };
  },
);

/** Certificates, one after the other; the value is their PEM. */
export const certificatesPem: SettingKind<string> = pemBlocks(
  "certificates in PEM form",
  ["CERTIFICATE"],
  (pems) => {
    for (const pem of pems) new X509Certificate(pem);
    return { value: pems.join("") };
  },
);
