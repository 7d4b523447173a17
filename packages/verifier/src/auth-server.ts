/** Requests to auth: its metadata, its key set, and introspection. */

/** Auth could not be asked, or could not say. Its message is for the log of whoever runs the API. */
export class UnavailableError extends Error {
  override readonly name = "UnavailableError";
  /** When auth is worth another try. */
  readonly retryAfterSeconds: number;

  constructor(
    message: string,
    { cause, retryAfterSeconds = 1 }: { cause?: unknown; retryAfterSeconds?: number },
  ) {
    super(message, { cause });
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

export type Members = Readonly<Record<string, unknown>>;

/** Milliseconds after which a request counts as lost, its repeat included. */
const timeoutMs = 2_000;

interface Request {
  readonly method?: "POST";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: URLSearchParams;
}

/**
 * Sends a request that only asks, so that it is sent a second time where the connection was lost: it may have been idle
 * for too long. Redirects are not followed.
 * @throws UnavailableError for all but a JSON object with status 200
 */
export async function askJson(call: typeof fetch, address: string, request: Request = {}): Promise<Members> {
  const init = { ...request, redirect: "error", signal: AbortSignal.timeout(timeoutMs) } as const;
  const send = () => call(address, init);
  try {
    const response = await send().catch((error: unknown) => {
      if (init.signal.aborted) throw error;
      return send();
    });
    if (response.status !== 200) {
      await response.body?.cancel();
      throw refused(address, response);
    }
    const body: unknown = await response.json();
    if (typeof body !== "object" || body === null) throw new Error("It is no JSON object");
    return { ...body };
  } catch (cause) {
    if (cause instanceof UnavailableError) throw cause;
    throw new UnavailableError(`${address} gave no response that can be used`, { cause });
  }
}

function refused(address: string, { status, headers }: Response): UnavailableError {
  const seconds = Number(headers.get("retry-after") ?? Number.NaN);
  const retryAfterSeconds = Number.isInteger(seconds) && seconds > 0 ? Math.min(seconds, 60) : 1;
  const reason =
    status === 401
      ? "refuses the credentials: use those of a client whose clientSettings have mayIntrospect: true"
      : `responded with ${status}`;
  return new UnavailableError(`${address} ${reason}`, { retryAfterSeconds });
}

/**
 * Finds an endpoint in the issuer's metadata (OpenID Connect Discovery section 4), and remembers it until a request to
 * it fails, as it may have moved.
 * @param given the address, if it need not be found
 */
export function createEndpoint(
  call: typeof fetch,
  { issuer, member, given }: { issuer: string; member: string; given: string | undefined },
) {
  let known = given;

  async function find(): Promise<string> {
    const address = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
    const metadata = await askJson(call, address);
    // Section 4.3: a document that names another issuer must not be used.
    if (metadata["issuer"] !== issuer)
      throw new UnavailableError(`${address} is of the issuer ${String(metadata["issuer"])}`, {});
    const url = String(metadata[member]);
    if (!url.startsWith("https:") && !(url.startsWith("http:") && issuer.startsWith("http:")))
      throw new UnavailableError(`${address} names no ${member} that can be used`, {});
    return url;
  }

  return async (request?: Request): Promise<Members> => {
    known ??= await find();
    try {
      return await askJson(call, known, request);
    } catch (error) {
      known = given;
      throw error;
    }
  };
}
