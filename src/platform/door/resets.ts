/**
 * Makes resets cheap, and bounds them, as a client of HTTP/2 may reset its requests as soon as it has sent them
 * (CVE-2023-44487), or have the server reset them by errors of protocol (CVE-2025-8671).
 */
import { constants, type Http2Session, type ServerHttp2Stream } from "node:http2";

/** How many streams of a connection its client may reset, or have reset. */
interface ResetLimit {
  /** At once. */
  readonly burst: number;
  readonly perSecond: number;
}

/** As {@link limitResets}, for the requests of one read, all of which Node reads before the others are counted. */
export function nodeResetLimit({ burst, perSecond }: ResetLimit) {
  return { streamResetBurst: 2 * burst, streamResetRate: perSecond };
}

interface Allowance {
  left: number;
  /** By performance.now(). */
  refilledAt: number;
}

const allowances = new WeakMap<Http2Session, Allowance>();
/** Streams that this server has reset for reasons of its own. */
const ownResets = new WeakSet<ServerHttp2Stream>();

/** Resets a stream for a reason of this server's, such as a stall. It does not count against the client. */
export function resetStream(stream: ServerHttp2Stream, code: number): void {
  ownResets.add(stream);
  stream.close(code);
}

/** Counts the stream if it is reset, and ends the connection with ENHANCE_YOUR_CALM once there are too many. */
export function limitResets(stream: ServerHttp2Stream, limit: ResetLimit): void {
  const { session } = stream;
  stream.on("close", () => {
    const isReset = stream.aborted || stream.rstCode !== constants.NGHTTP2_NO_ERROR;
    if (session && isReset && !ownResets.has(stream)) countReset(session, limit);
  });
}

function countReset(session: Http2Session, { burst, perSecond }: ResetLimit): void {
  const now = performance.now();
  const allowance = allowances.get(session) ?? { left: burst, refilledAt: now };
  allowances.set(session, allowance);
  if (allowance.left < 0 || session.destroyed) return;
  const refill = ((now - allowance.refilledAt) / 1000) * perSecond;
  allowance.left = Math.min(burst, allowance.left + refill) - 1;
  allowance.refilledAt = now;
  if (allowance.left >= 0) return;
  session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  // Node would throw away what is not yet sent.
  setImmediate(() => session.destroy());
}

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
