/** The operations of openapi/otp-verifier.yaml: decode, one call, encode. */
import type { operations } from "../../../gen/openapi/otp-verifier.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { type Binding, type BoundContract, bindContract } from "../../platform/openapi/bind.ts";
import { type Handlers, nothingElse } from "../../platform/openapi/handlers.ts";
import { proofSeconds, type SignOtpProof } from "./otp-proof-signer.ts";
import { requirePhone } from "./phone.ts";
import { codeSeconds, type Message, type Verifications } from "./verifications.ts";

interface Dependencies {
  readonly verifications: Verifications;
  readonly signOtpProof: SignOtpProof;
  /** Receives the codes. */
  readonly logger: Logger;
}

/** The document bound to its handlers; its operations need no authentication. */
export function otpVerifierHttp(
  dependencies: Dependencies &
    Pick<Binding<operations, never>, "document" | "observer" | "validateResponses">,
): BoundContract {
  const handlers = otpVerifierHandlers(dependencies);
  return bindContract<operations, never>({
    ...dependencies,
    service: "otp-verifier",
    handlers,
    security: {},
  });
}

function otpVerifierHandlers(dependencies: Dependencies): Handlers<operations, never> {
  const { verifications, signOtpProof, logger } = dependencies;
  return {
    async startVerification({ body: { phone, ...rest } }) {
      nothingElse(rest);
      logMessage(logger, verifications.start(requirePhone(phone, "/body/phone")));
      return { status: 202, body: { expiresIn: codeSeconds } };
    },
    async checkVerification({ body: { phone, code, ...rest } }) {
      nothingElse(rest);
      const canonical = requirePhone(phone, "/body/phone");
      const verified =
        code === undefined ? verifications.takePass(canonical) : verifications.check(canonical, code);
      return { status: 200, body: { verified } };
    },
    async confirmVerification({ body: { phone, code, ...rest } }) {
      nothingElse(rest);
      const canonical = requirePhone(phone, "/body/phone");
      const verified = verifications.confirm(canonical, code);
      const otpVerificationToken = verified ? await signOtpProof(canonical) : undefined;
      const expiresIn = verified ? proofSeconds : undefined;
      return { status: 200, body: { verified, otpVerificationToken, expiresIn } };
    },
    async listMessages({ query: { phone, ...rest } }) {
      nothingElse(rest);
      const messages = verifications.messages(requirePhone(phone, "/query/phone"));
      const shown = messages.map(({ sentAt, ...message }) => ({ ...message, sentAt: sentAt.toISOString() }));
      return { status: 200, body: { messages: shown } };
    },
  };
}

/**
 * Logs the text message, for the developer at the terminal. No other code is ever logged, and this one is valid
 * only at this verifier, which production refuses. The log masks the phone number, as everywhere.
 */
function logMessage(logger: Logger, { phone, code }: Message): void {
  logger.info({ sms: true }, `Text message to ${phone}: your code is ${code}`);
}
