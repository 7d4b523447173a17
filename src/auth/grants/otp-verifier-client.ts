import createClient from "openapi-fetch";
import type { paths } from "../../../gen/openapi/otp-verifier.ts";
import { BoundedWork, type Room } from "../../platform/base/bounded-work.ts";
import { ErrorKinds, ServiceError, unavailable } from "../../platform/base/errors.ts";
import type { RequestContext } from "../../platform/base/request-context.ts";
import { inSpan, traceHeaders } from "../../platform/base/tracing.ts";
import { UnknownVerdict } from "../limits/guessing.ts";

/** Milliseconds that the OTP verification service may take. */
const timeoutMs = 2_000;

/**
 * Checks with the OTP verification service whether the code is right for the phone or, without a code, whether
 * the phone has just passed a check.
 * @throws unavailable if the service does not respond, or not as its contract says; where it takes too long, as an
 *   unknown verdict
 */
type CheckOneTimeCode = (
  phone: string,
  code: string | undefined,
  context: RequestContext,
) => Promise<boolean>;

/**
 * Checks at a time. A service that is slow keeps no more callers waiting, and the rest of this one has room for
 * others.
 */
const maxChecks = 128;

const busy = () =>
  new ServiceError(ErrorKinds.unavailable, "Too many codes are being checked. Try again in a moment.", {
    retryAfterSeconds: 1,
  });

export interface OtpChecks {
  /** For work that has a check in it. Refuses with unavailable. */
  readonly room: Room;
  readonly check: CheckOneTimeCode;
}

/** A client of openapi/otp-verifier.yaml at this address. */
export function createOtpChecks(verifierUrl: string): OtpChecks {
  const client = createClient<paths>({ baseUrl: verifierUrl.replace(/\/$/, "") });

  const { hostname } = new URL(verifierUrl);
  const attributes = { "http.request.method": "POST", "server.address": hostname };

  async function check(phone: string, code: string | undefined, context: RequestContext): Promise<boolean> {
    const service = "The OTP verification service";
    const result = await inSpan({ name: "POST", kind: "client", attributes }, async (span) => {
      const checked = await client.POST("/v1/verifications/check", {
        body: { phone, ...(code !== undefined && { code }) },
        headers: { "X-Request-Id": context.requestId, ...traceHeaders(span?.context ?? context) },
        signal: AbortSignal.timeout(timeoutMs),
        redirect: "error",
      });
      const { status } = checked.response;
      span?.set({ "http.response.status_code": status });
      // 400 is how it says that a code cannot be right.
      if (status > 400) span?.fail(`${status}`);
      return checked;
    }).catch((cause) => {
      const error = unavailable(service, cause);
      // By then it has the code, and may judge it, and let the phone pass, whether or not anybody waits for it.
      throw cause instanceof DOMException && cause.name === "TimeoutError"
        ? new UnknownVerdict(error)
        : error;
    });
    if (result.response.status === 400) return false;
    if (typeof result.data?.verified !== "boolean") {
      throw unavailable(service, new Error(`its response ${result.response.status} has no result`));
    }
    return result.data.verified;
  }

  return { room: new BoundedWork(maxChecks, maxChecks, busy), check };
}
