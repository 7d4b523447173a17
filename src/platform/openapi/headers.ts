import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";

/** A header by its name in lower case; undefined where it was not sent. */
export type HeaderReader = (name: string) => string | undefined;

/**
 * Reads the headers of a request off what Node has parsed, without making objects of all of them. One that is given
 * more than once is joined with commas (RFC 9110 section 5.3): Node would drop all but the first of some, and what
 * was sent would look like something else. Cookies have a rule of their own, and no use here.
 */
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
