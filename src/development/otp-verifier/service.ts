/**
 * Composition root of the built-in OTP verifier, which replaces a real one in development mode. It implements
 * openapi/otp-verifier.yaml; the auth service calls it over HTTP, as it calls a real one.
 */
import type { Clock } from "../../platform/base/clock.ts";
import type { HttpObserver } from "../../platform/base/observers.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { BoundContract } from "../../platform/openapi/bind.ts";
import { type ContractDocument, contractTexts, loadContract } from "../../platform/openapi/document.ts";
import { otpVerifierHttp } from "./http.ts";
import { createSignOtpProof } from "./otp-proof-signer.ts";
import { createVerifications, type Verifications } from "./verifications.ts";

export interface OtpVerifier {
  readonly http: BoundContract;
  readonly document: ContractDocument;
  /** Shows a message of the auth service's, beside those of the verifier. */
  readonly show: Verifications["show"];
}

interface Dependencies {
  /** `iss` of the proofs. */
  readonly issuer: string;
  /** PEM; signs the proofs. */
  readonly privateKey: string;
  readonly logger: Logger;
  readonly observer: HttpObserver;
  readonly clock: Clock;
  /** Whether every response is validated against the document. */
  readonly validateResponses: boolean;
}

/** @throws if the key is of a type that cannot sign proofs */
export async function createOtpVerifier(dependencies: Dependencies): Promise<OtpVerifier> {
  const { logger, observer, clock, validateResponses } = dependencies;
  const document = await loadContract(contractTexts("otp-verifier"));
  const verifications = createVerifications(clock);
  const http = otpVerifierHttp({
    document,
    verifications,
    signOtpProof: createSignOtpProof(dependencies, clock),
    logger,
    observer,
    validateResponses,
  });
  return { http, document, show: verifications.show };
}
