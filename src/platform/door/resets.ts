/** Makes resets cheap, as a client of HTTP/2 may reset its requests as soon as it has sent them (CVE-2023-44487). */
import type { ServerHttp2Stream } from "node:http2";

let arrived: { readonly stream: ServerHttp2Stream; readonly begin: () => void }[] = [];

/** Begins with a request once all that arrived together with it is read, unless it has been reset by then. */
export function unlessReset(stream: ServerHttp2Stream, begin: () => void): void {
  // Nobody is left to receive the error.
  stream.on("error", () => undefined);
  if (arrived.push({ stream, begin }) === 1) setImmediate(beginAll);
}

function beginAll(): void {
  const all = arrived;
  arrived = [];
  for (const { stream, begin } of all) if (!stream.destroyed && !stream.closed) begin();
}
