/** The certificate of a TLS server, which is replaced on disk while the server runs. */
import { X509Certificate } from "node:crypto";
import type { Logger } from "pino";

/** PEM texts. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

interface Following {
  readonly first: Certificate;
  /** Reads it again, or says in a sentence why that is not possible. */
  readonly read: () => { readonly value: Certificate } | { readonly problem: string };
  /** Takes it for all connections from now on; those that there are stay. */
  readonly use: (certificate: Certificate) => void;
  readonly logger: Logger;
  /** Milliseconds between two looks; two seconds unless given. */
  readonly lookMs?: number;
}

/**
 * Uses a certificate that has changed, once two looks in a row find the same: between them the files may be half written.
 * What cannot be used is logged once, and the last one stays. @returns ends it
 */
export function followCertificate({ first, read, use, logger, lookMs = 2_000 }: Following): () => void {
  const textOf = ({ cert, key }: Certificate) => `${cert}\n${key}`;
  let used = textOf(first);
  let [seen, settled] = [used, used];
  const looking = setInterval(() => {
    const found = read();
    const text = "problem" in found ? found.problem : textOf(found.value);
    const isNew = text !== seen;
    seen = text;
    if (isNew || text === settled) return;
    settled = text;
    if ("problem" in found) {
      logger.warn(`The certificate cannot be read again, so the last one is kept: ${found.problem}`);
    } else if (text !== used) {
      use(found.value);
      used = text;
      const validTo = new X509Certificate(found.value.cert).validToDate.toISOString();
      logger.info({ validTo }, "The certificate was replaced");
    }
  }, lookMs).unref();
  return () => clearInterval(looking);
}
