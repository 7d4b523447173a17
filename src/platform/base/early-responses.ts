/**
 * Responses over HTTP/2 that are ready before their request has ended, such as refusals. If such a response ends first,
 * Node counts the stream as open until it has read all of the request, so a client that keeps as many streams open as
 * it may seems to exceed the limit: its requests are reset with ENHANCE_YOUR_CALM, or its connection is ended. So the
 * request ends first.
 */
import type { ServerHttp2Stream } from "node:http2";

/**
 * Ends the response no sooner than the request, of which the rest is discarded; all else of the response is sent at
 * once. If the request does not end, the stream is reset without error (RFC 9113 section 8.1). Call it before anything
 * is sent.
 * @param requestMs how long a request may take; a third of it is given here
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
