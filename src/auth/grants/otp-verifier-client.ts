import createClient from "openapi-fetch";
import type { paths } from "../../../gen/openapi/otp-verifier.ts";
import { ErrorKinds, ServiceError, unavailable } from "../../platform/base/errors.ts";
import type { RequestContext } from "../../platform/base/request-context.ts";
import { inSpan, traceHeaders } from "../../platform/base/tracing.ts";
import { fetchAlone } from "../../platform/http2/fetch-alone.ts";
import { UnknownVerdict } from "../limits/guessing.ts";
import { WorkLimit } from "../work-limit.ts";

/** Milliseconds that the OTP verification service may take. */
const timeoutMs = 2_000;

/**
 * Checks with the OTP verification service whether the code is right for the phone or, without a code, whether
 * the phone has just passed a check.
 * @throws unavailable if the service does not respond, or not as its contract says
 * @throws UnknownVerdict if the service may have judged the code all the same: its response was late, lost or broken
 */
type CheckOneTimeCode = (
  phone: string,
  code: string | undefined,
  context: RequestContext,
) => Promise<boolean>;

/** Whether a status says that the service has not judged the code. A gateway's 502 or 504 does not say it. */
const hasNotJudged = (status: number) => status >= 300 && status !== 502 && status !== 504;

/** Checks at a time. If the verification service is slow, no more callers than these wait for it. */
const maxChecks = 128;

const busy = () =>
  new ServiceError(ErrorKinds.unavailable, "Too many codes are being checked. Try again in a moment.", {
    retryAfterSeconds: 1,
  });

export interface OtpChecks {
  /** The limit on checks at the same time. Refuses with unavailable. */
  readonly limit: WorkLimit;
  readonly check: CheckOneTimeCode;
}

/** A client of openapi/otp-verifier.yaml at this address. Undefined: every check is unavailable. */
export function createOtpChecks(verifierUrl: string | undefined): OtpChecks {
  const service = "The OTP verification service";
  const limit = new WorkLimit(maxChecks, busy);
  if (verifierUrl === undefined) {
    const unset = new Error("OTP_VERIFIER_URL is not set");
    return { limit, check: () => Promise.reject(unavailable(service, unset)) };
  }
  const client = createClient<paths>({ baseUrl: verifierUrl.replace(/\/$/, "") });

  const { hostname } = new URL(verifierUrl);
  const attributes = { "http.request.method": "POST", "server.address": hostname };

  async function check(phone: string, code: string | undefined, context: RequestContext): Promise<boolean> {
    let wasSent = false;
    const result = await inSpan({ name: "POST", kind: "client", attributes }, async (span) => {
      const checked = await client.POST("/v1/verifications/check", {
        body: { phone, ...(code !== undefined && { code }) },
        headers: { "X-Request-Id": context.requestId, ...traceHeaders(span?.context ?? context) },
        signal: AbortSignal.timeout(timeoutMs),
        fetch: (request) =>
          fetchAlone(request, () => {
            wasSent = true;
          }),
      });
      const { status } = checked.response;
      span?.set({ "http.response.status_code": status });
      // By its contract, a 400 means that the code cannot be right.
      if (status > 400) span?.fail(`${status}`);
      return checked;
    }).catch((failure) => {
      const error = unavailable(service, failure);
      // A code that the service has received may be found right all the same, which lets the phone pass.
      throw wasSent ? new UnknownVerdict(error) : error;
    });
    const { status } = result.response;
    if (status === 400) return false;
    if (typeof result.data?.verified === "boolean") return result.data.verified;
    const error = unavailable(service, new Error(`its response ${status} has no result`));
    throw hasNotJudged(status) ? error : new UnknownVerdict(error);
  }

  return { limit, check };
}
