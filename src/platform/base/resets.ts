/**
 * Clients of HTTP/2 that reset their requests as soon as they have sent them (CVE-2023-44487). Node closes a connection
 * after 1,000 resets at once, or 33 in each second; here they are made cheap.
 */
import type { ServerHttp2Stream } from "node:http2";

/** Requests that have arrived in this turn of the event loop. */
let arrived: { readonly stream: ServerHttp2Stream; readonly begin: () => void }[] = [];

/**
 * Begins with a request when everything is read that has arrived together with it, unless it has been reset by then. To
 * begin with it and to end it again costs many times as much as the stream alone.
 */
export function unlessReset(stream: ServerHttp2Stream, begin: () => void): void {
  // There is nobody to tell.
  stream.on("error", () => undefined);
  if (arrived.push({ stream, begin }) === 1) setImmediate(beginAll);
}

function beginAll(): void {
  const all = arrived;
  arrived = [];
  for (const { stream, begin } of all) if (!stream.destroyed && !stream.closed) begin();
}
