/** Requests to auth: its metadata, its key set, and introspection. */

/** Auth could not be asked, or could not say. Its message is for the log of whoever runs the API. */
export class UnavailableError extends Error {
  override readonly name = "UnavailableError";
  /** When auth is worth another try. */
  readonly retryAfterSeconds: number;
  /** Of auth's response, where that is the reason. */
  readonly status: number | undefined;

  constructor(
    message: string,
    {
      cause,
      status,
      retryAfterSeconds = 1,
    }: { cause?: unknown; status?: number; retryAfterSeconds?: number },
  ) {
    super(message, { cause });
    this.retryAfterSeconds = retryAfterSeconds;
    this.status = status;
  }
}

export type Members = Readonly<Record<string, unknown>>;

/** Milliseconds after which a check counts as failed, whatever it has to ask. */
const timeoutMs = 2_000;
/** Bytes of a body. Key sets and introspections are far smaller. */
const maxBytes = 256 * 1024;

interface Request {
  readonly method?: "POST";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: URLSearchParams;
}

/**
 * Sends a request that only asks, so that it is sent a second time where its connection had been closed while it was
 * idle. Redirects are not followed.
 * @throws UnavailableError for all but a JSON object with status 200
 */
async function askJson(
  call: typeof fetch,
  address: string,
  { signal, ...request }: Request & { readonly signal: AbortSignal },
): Promise<Members> {
  // Not "error", which Cloudflare's Workers refuse.
  const send = () => call(address, { ...request, redirect: "manual", signal });
  try {
    const response = await send().catch((error: unknown) => {
      if (isOfIdleConnection(error)) return send();
      throw error;
    });
    if (response.status !== 200) {
      await response.body?.cancel();
      throw refused(address, response);
    }
    const body: unknown = JSON.parse(await textOf(response, signal));
    if (typeof body !== "object" || body === null) throw new Error("It is no JSON object");
    return { ...body };
  } catch (cause) {
    if (cause instanceof UnavailableError) throw cause;
    throw new UnavailableError(`${address} gave no response that can be used`, { cause });
  }
}

/** By the codes of Node.js and of Bun; others send again by themselves. A connection that cannot be made has another. */
function isOfIdleConnection(error: unknown): boolean {
  const codeOf = (value: unknown) => value instanceof Error && "code" in value && value.code;
  const codes = [codeOf(error), error instanceof Error && codeOf(error.cause)];
  return codes.includes("UND_ERR_SOCKET") || codes.includes("ECONNRESET");
}

/** In Node.js 20 and 22 the signal of a request may not reach its body: here it ends the reading by itself. */
async function textOf({ body }: Response, signal: AbortSignal): Promise<string> {
  if (!body) return "";
  const reader = body.getReader();
  const decoder = new TextDecoder();
  const stop = () => void reader.cancel().catch(() => undefined);
  signal.addEventListener("abort", stop);
  try {
    let text = "";
    let bytes = 0;
    for (;;) {
      const { done, value } = await reader.read();
      signal.throwIfAborted();
      if (done) return text;
      bytes += value.byteLength;
      if (bytes > maxBytes) throw new Error(`It is longer than ${maxBytes} bytes`);
      text += decoder.decode(value, { stream: true });
    }
  } finally {
    signal.removeEventListener("abort", stop);
    stop();
  }
}

function refused(address: string, { status, headers }: Response): UnavailableError {
  const seconds = Number(headers.get("retry-after") ?? Number.NaN);
  const retryAfterSeconds = Number.isInteger(seconds) && seconds > 0 ? Math.min(seconds, 60) : 1;
  const reason =
    status === 401
      ? "refuses the credentials: use those of a client whose clientSettings have mayIntrospect: true"
      : `responded with ${status}`;
  return new UnavailableError(`${address} ${reason}`, { status, retryAfterSeconds });
}

/**
 * Finds an endpoint in the issuer's metadata (OpenID Connect Discovery section 4), once for all who ask at the same
 * time, and remembers it until it is not found there, as it may have moved.
 * @param given the address, if it need not be found
 */
export function createEndpoint(
  call: typeof fetch,
  { issuer, member, given }: { issuer: string; member: string; given: string | undefined },
) {
  let finding: Promise<string> | undefined;

  async function find(signal: AbortSignal): Promise<string> {
    if (given !== undefined) return given;
    const address = `${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`;
    const metadata = await askJson(call, address, { signal });
    // Section 4.3: a document that names another issuer must not be used.
    if (metadata["issuer"] !== issuer)
      throw new UnavailableError(`${address} is of the issuer ${String(metadata["issuer"])}`, {});
    const url = String(metadata[member]);
    if (!url.startsWith("https:") && !(url.startsWith("http:") && issuer.startsWith("http:")))
      throw new UnavailableError(`${address} names no ${member} that can be used`, {});
    return url;
  }

  return async (request?: Request): Promise<Members> => {
    const signal = AbortSignal.timeout(timeoutMs);
    finding ??= find(signal);
    const found = finding;
    let address: string | undefined;
    try {
      address = await found;
      return await askJson(call, address, { ...request, signal });
    } catch (error) {
      const isLost = address === undefined || (error instanceof UnavailableError && error.status === 404);
      if (isLost && finding === found) finding = undefined;
      throw error;
    }
  };
}
