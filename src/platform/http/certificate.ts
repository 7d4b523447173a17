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
 * Uses a certificate that has changed. What cannot be read or used is logged, each problem once until it is over, and the
 * last one stays. @returns ends it
 */
export function followCertificate({ first, read, use, logger, lookMs = 2_000 }: Following): () => void {
  let [last, problem] = [first, ""];
  const looking = setInterval(() => {
    const before = problem;
    try {
      const found = read();
      problem = "problem" in found ? found.problem : "";
      if ("value" in found && (found.value.cert !== last.cert || found.value.key !== last.key)) {
        use(found.value);
        last = found.value;
        const validTo = new X509Certificate(last.cert).validToDate.toISOString();
        logger.info({ validTo }, "The certificate was replaced");
      }
    } catch (error) {
      problem = String(error);
    }
    if (problem !== "" && problem !== before) {
      logger.warn(`The certificate cannot be read again, so the last one is kept: ${problem}`);
    }
  }, lookMs).unref();
  return () => clearInterval(looking);
}
