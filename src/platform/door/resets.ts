/**
 * Makes resets cheap, and bounds them, as a client of HTTP/2 may reset its requests as soon as it has sent them
 * (CVE-2023-44487), or have the server reset them by errors of protocol (CVE-2025-8671).
 */
import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";

/** Streams of a connection that its client may reset, or have reset, beside those that it may at once. */
const perSecond = 33;

/** As {@link limitResets}, for the requests of one read, all of which Node reads before the others are counted. */
export function nodeResetLimit(burst: number) {
  return { streamResetBurst: 2 * burst, streamResetRate: perSecond, maxSessionInvalidFrames: 2 * burst };
}

/** Streams that this server has reset for reasons of its own. */
const ownResets = new WeakSet<ServerHttp2Stream>();

/** Resets a stream for a reason of this server's, such as a stall. It does not count against the client. */
export function resetStream(stream: ServerHttp2Stream, code: number): void {
  ownResets.add(stream);
  stream.close(code);
}

/** Milliseconds between two looks for streams that were reset unseen. */
const unseenMs = 250;

/** Counts the streams of a connection that are reset, and ends it with ENHANCE_YOUR_CALM once there are too many. */
export function limitResets(session: ServerHttp2Session, burst: number): void {
  let left = burst;
  let refilledAt = performance.now();
  /** Since the last look; and the stream that was the latest then. */
  let seen = 0;
  let latestSeen = -1;
  let latest = -1;

  function count(resets: number): void {
    if (left < 0 || session.destroyed) return;
    const now = performance.now();
    left = Math.min(burst, left + ((now - refilledAt) / 1000) * perSecond) - resets;
    refilledAt = now;
    if (left >= 0) return;
    session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    // Within the reading of frames, Node would throw away what is not yet sent.
    const error = new Error("Too many streams were reset");
    setImmediate(() => session.destroy(error, constants.NGHTTP2_ENHANCE_YOUR_CALM));
  }

  session.on("stream", (stream) => {
    seen += 1;
    latestSeen = stream.id ?? latestSeen;
    stream.on("close", () => {
      const isReset = stream.aborted || stream.rstCode !== constants.NGHTTP2_NO_ERROR;
      if (isReset && !ownResets.has(stream)) count(1);
    });
  });

  // Node resets a stream with too many or too long headers, and tells nobody: only its number shows it. Clients also
  // skip numbers, of calls that they gave up before they sent them, but not up to a stream that nobody has seen.
  const look = setInterval(() => {
    const before = latest;
    latest = session.state.lastProcStreamID || latest;
    if (latest > latestSeen) count((latest - before) / 2 - seen);
    seen = 0;
  }, unseenMs).unref();
  session.once("close", () => clearInterval(look));
}

let unbegun: { readonly stream: ServerHttp2Stream; readonly begin: () => void }[] = [];

/** Begins with a request once all that arrived together with it is read, unless it has been reset by then. */
export function unlessReset(stream: ServerHttp2Stream, begin: () => void): void {
  // Nobody is left to receive the error.
  stream.on("error", () => undefined);
  if (unbegun.push({ stream, begin }) === 1) setImmediate(beginAll);
}

function beginAll(): void {
  const all = unbegun;
  unbegun = [];
  for (const { stream, begin } of all) if (!stream.destroyed && !stream.closed) begin();
}
