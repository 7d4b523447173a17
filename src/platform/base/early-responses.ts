/**
 * Responses over HTTP/2 that are ready before their request has ended, such as refusals. If such a response ends first,
 * it is the client that closes the stream, with the end of its request; Node counts the stream as open until it has
 * read all that came with it. A client that keeps as many streams open as it may then seems to exceed the limit: Node
 * resets its requests with ENHANCE_YOUR_CALM, or ends the connection ("max concurrent streams exceeded"). The same
 * happens while a reset of Node's own (RST_STREAM without error, of what nobody reads) waits to be sent. If the request
 * ends first, the end of the response closes the stream, and Node forgets it before the client can know.
 *
 * A refusal over native gRPC is trailers only, so all of it waits for the end of the request. Sent as headers, with the
 * end later, it would come no sooner: grpc-go and @grpc/grpc-js wait for the end, and take it for an internal error
 * then. A client that has sent its message gets the refusal at once.
 */
import type { ServerHttp2Stream } from "node:http2";

/**
 * Ends the response no sooner than the request, of which the rest is discarded. All else of the response is sent at
 * once. Should the client wait for the response, the wait has an end: then the stream is reset without error, so that
 * the client sends no more (RFC 9113 section 8.1). Call it before anything is sent.
 * @param requestMs how long a request may take. A third of it is given: a busy client sends its bodies late, as all of
 * them share the window of the connection
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
