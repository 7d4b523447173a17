/**
 * Responses over HTTP/2 that are ready before their request has ended. If one ended first, Node would count the stream
 * as open until the request is read, and reset further ones of the client with ENHANCE_YOUR_CALM.
 */
import type { ServerHttp2Stream } from "node:http2";

/**
 * Ends the response no sooner than the request, or else resets the stream (RFC 9113 section 8.1).
 * @param requestMs how long a request may take; a third of it is given here. Call it before anything is sent
 */
export function endAfterRequest(stream: ServerHttp2Stream, requestMs: number): void {
  if (stream.endAfterHeaders) return;
  const { respond, end } = stream;
  let isHeld = false;
  let isReleased = false;

  /** Does it when the request has ended. Only the first counts: what comes after it has nothing to send. */
  function hold(finish: () => void): void {
    if (isHeld) return;
    isHeld = true;
    const release = () => {
      if (isReleased) return;
      isReleased = true;
      clearTimeout(timer);
      if (stream.destroyed || stream.closed) return;
      finish();
      if (!stream.readableEnded) stream.close();
    };
    const timer = setTimeout(release, requestMs / 3);
    stream.once("end", release);
    stream.once("close", release);
    stream.resume();
  }

  const mayEnd = () => isReleased || (!isHeld && stream.readableEnded);

  stream.respond = (headers, options) => {
    if (mayEnd() || !options?.endStream) respond.call(stream, headers, options);
    else hold(() => respond.call(stream, headers, options));
  };
  stream.end = (...args: unknown[]) => {
    if (mayEnd()) return Reflect.apply(end, stream, args);
    if (isHeld) return stream;
    const callback = args.findLast((one) => typeof one === "function");
    const content = args.filter((one) => one !== callback && one !== undefined && one !== null);
    if (content.length > 0) Reflect.apply(stream.write, stream, content);
    hold(() => Reflect.apply(end, stream, callback ? [callback] : []));
    return stream;
  };
}
