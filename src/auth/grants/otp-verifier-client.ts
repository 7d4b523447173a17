import createClient from "openapi-fetch";
import type { paths } from "../../../gen/openapi/otp-verifier.ts";
import { unavailable } from "../../platform/base/errors.ts";
import type { RequestContext } from "../../platform/base/request-context.ts";

/** Milliseconds that the OTP verification service may take. */
const timeoutMs = 2_000;

/**
 * Asks the OTP verification service whether the code is right for the phone or, without a code, whether the
 * phone passed a check just now. Throws `unavailable` where it does not answer as its contract says.
 */
export type CheckOneTimeCode = (
  phone: string,
  code: string | undefined,
  context: RequestContext,
) => Promise<boolean>;

/** A client of openapi/otp-verifier.yaml at this address. */
export function createCheckOneTimeCode(verifierUrl: string): CheckOneTimeCode {
  const client = createClient<paths>({ baseUrl: verifierUrl.replace(/\/$/, "") });

  return async (phone, code, { requestId, traceparent }) => {
    const what = "The OTP verification service";
    const answer = await client
      .POST("/v1/verifications/check", {
        body: { phone, ...(code !== undefined && { code }) },
        headers: { "X-Request-Id": requestId, ...(traceparent && { traceparent }) },
        signal: AbortSignal.timeout(timeoutMs),
        redirect: "error",
      })
      .catch((cause) => {
        throw unavailable(what, cause);
      });
    if (answer.response.status === 400) return false;
    if (typeof answer.data?.verified !== "boolean") {
      throw unavailable(what, new Error(`it answered ${answer.response.status} without a result`));
    }
    return answer.data.verified;
  };
}
