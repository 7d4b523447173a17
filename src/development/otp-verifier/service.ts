/**
 * Composition root of the built-in OTP verifier, which development mode serves in the place of a real one.
 * It implements openapi/otp-verifier.yaml; the auth service reaches it over the wire, as any other.
 */
import { Hono } from "hono";
import type { Clock } from "../../platform/base/clock.ts";
import type { HttpObserver } from "../../platform/base/observers.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { type ContractDocument, contractTexts, loadContract } from "../../platform/openapi/document.ts";
import { otpVerifierHttp } from "./http.ts";
import { createSignOtpProof } from "./otp-proof-signer.ts";
import { createVerifications } from "./verifications.ts";

export interface OtpVerifier {
  readonly http: Hono;
  readonly document: ContractDocument;
}

interface Dependencies {
  /** `iss` of the proofs. */
  readonly issuer: string;
  /** PEM; signs the proofs. */
  readonly privateKey: string;
  readonly logger: Logger;
  readonly observer: HttpObserver;
  readonly clock: Clock;
  /** Hold every response against the document. */
  readonly validateResponses: boolean;
  /** In front of the document's paths. */
  readonly basePath: string;
}

/** @throws if the key is of no type that can sign proofs */
export async function createOtpVerifier(dependencies: Dependencies): Promise<OtpVerifier> {
  const { logger, observer, clock, validateResponses, basePath } = dependencies;
  const document = await loadContract(contractTexts("otp-verifier"));
  const bound = otpVerifierHttp({
    document,
    verifications: createVerifications(clock),
    signOtpProof: createSignOtpProof(dependencies, clock),
    logger,
    observer,
    validateResponses,
  });
  return { http: new Hono().route(basePath, bound), document };
}
