/** The greatest age of connections of HTTP/2, whose clients stay with one process as long as they are open. */
import type { Http2Session } from "node:http2";

/**
 * Closes the connection by GOAWAY at this age, give or take a tenth: its streams end as they will, and its client
 * connects anew. Streams that are on their way then are not processed, which their client can tell by GOAWAY. A first
 * GOAWAY without a last stream (RFC 9113 section 6.8) would save them, but after any GOAWAY of node:http2, also one
 * that names the highest stream, no more streams are taken.
 */
export function closeAtAge(session: Http2Session, maxAgeMs: number): void {
  const timer = setTimeout(() => session.close(), maxAgeMs * (0.9 + Math.random() / 5)).unref();
  session.once("close", () => clearTimeout(timer));
}
