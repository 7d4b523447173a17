/** Settings that hold PEM text (RFC 7468): certificates and keys. Problems never quote them. */
import { createPrivateKey, X509Certificate } from "node:crypto";
import * as v from "valibot";
import { must, type TextSchema, unquoted } from "./kinds.ts";

const block = /-----BEGIN ([A-Z0-9 ]+)-----((?:(?!-----)[\s\S])*)-----END \1-----/g;

/** The blocks of a text, or why they are refused, as after "but". Their line breaks may be any (RFC 7468 section 3). */
function blocksOf(text: string, labels: readonly string[]): readonly string[] | string {
  const found = [...text.matchAll(block)];
  if (found.length === 0) return "holds no whole PEM block";
  const foreign = found.find(([, label = ""]) => !labels.includes(label));
  if (foreign) return `holds a block ${foreign[1]}`;
  return found.map(([, label, body = ""]) => {
    const lines = body.replace(/\\+[rn]?|\s+/g, "").replace(/.{64}(?=.)/g, "$&\n");
    return `-----BEGIN ${label}-----\n${lines}\n-----END ${label}-----\n`;
  });
}

/**
 * PEM blocks, however their line breaks are written. @param labels that are accepted, as in "PUBLIC KEY"
 * @param decode turns the blocks, at least one and `most` at most, into the value; throws to refuse them
 */
export function pemBlocks<T>(
  expects: string,
  labels: readonly string[],
  decode: (blocks: readonly string[]) => T,
  most = Number.POSITIVE_INFINITY,
): TextSchema<T> {
  return v.pipe(
    v.string(),
    v.rawTransform(({ dataset, addIssue, NEVER }) => {
      const refuse = (why: string) => {
        addIssue({ message: `${must(expects)}, but ${why}` });
        return NEVER;
      };
      const blocks = blocksOf(dataset.value, labels);
      if (typeof blocks === "string") return refuse(blocks);
      if (blocks.length > most) return refuse(`holds ${blocks.length} PEM blocks`);
      try {
        return decode(blocks);
      } catch {
        return refuse(`its ${/BEGIN (.+?)-/.exec(blocks.join())?.[1]} cannot be decoded`);
      }
    }),
    v.description(expects),
    unquoted(),
  );
}

/** Exactly one PEM block; the parameters are those of {@link pemBlocks}. */
export function pemBlock<T>(expects: string, labels: readonly string[], decode: (pem: string) => T) {
  return pemBlocks(expects, labels, (blocks) => decode(blocks.join("")), 1);
}

/** The labels of unencrypted private keys: PKCS #8, PKCS #1, SEC 1. */
export const privateKeyLabels = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] as const;

/** A private key of any algorithm; the value is its PEM. */
export const privateKeyPem = pemBlock("an unencrypted private key in PEM form", privateKeyLabels, (pem) => {
  createPrivateKey(pem);
  return pem;
});

/** One certificate or more; the value is their PEM. */
export const certificatesPem = pemBlocks("certificates in PEM form", ["CERTIFICATE"], (pems) => {
  for (const pem of pems) new X509Certificate(pem);
  return pems.join("");
});
