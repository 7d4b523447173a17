import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";

/** Returns a header by its name in lower case; undefined if it was not sent. */
export type HeaderReader = (name: string) => string | undefined;

/** Reads headers from Node's raw ones, repeated ones joined with commas (RFC 9110 section 5.3). Not for `Cookie`. */
export function headerReader({ rawHeaders }: IncomingMessage | Http2ServerRequest): HeaderReader {
  return (name) => {
    let value: string | undefined;
    for (let at = 0; at < rawHeaders.length; at += 2) {
      const sent = rawHeaders[at];
      if (sent === undefined || sent.length !== name.length || sent.toLowerCase() !== name) continue;
      value = value === undefined ? rawHeaders[at + 1] : `${value}, ${rawHeaders[at + 1]}`;
    }
    return value;
  };
}
