import { codeOf } from "../../platform/base/error-code.ts";

/** The timeout of a request, in milliseconds. */
const timeoutMs = 2_000;
/** The most bytes of a response; real ones are far smaller. */
const maxBytes = 256 * 1024;

/** Codes of a connection that the other side closed, perhaps because it was idle. */
const closed = /^(ECONNRESET|EPIPE|UND_ERR_SOCKET)$/;

/**
 * Fetches a JSON object, which the identity provider returns with status 200. Redirects are not followed. A request
 * whose connection is closed is sent a second time, as it may be: it only asks.
 * @throws Error if it returns anything else, or nothing before the timeout
 */
export async function fetchJson(
  address: string,
  request: {
    readonly method?: "POST";
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: URLSearchParams;
  } = {},
): Promise<Readonly<Record<string, unknown>>> {
  const headers = new Headers(request.headers);
  headers.set("accept", "application/json");
  const signal = AbortSignal.timeout(timeoutMs);
  const send = () => fetch(address, { ...request, headers, redirect: "error", signal });
  const response = await send().catch((error: unknown) => {
    if (error instanceof Error && closed.test(codeOf(error.cause) ?? "")) return send();
    throw error;
  });
  if (response.status !== 200) {
    await response.body?.cancel();
    throw new Error(`${address} returned status ${response.status}`);
  }
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response.body ?? []) {
    size += chunk.byteLength;
    if (size > maxBytes) throw new Error(`${address} returned more than ${maxBytes} bytes`);
    chunks.push(chunk);
  }
  const value: unknown = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  if (typeof value !== "object" || value === null) throw new Error(`${address} returned no JSON object`);
  return { ...value };
}
