/**
 * Removes all listeners from a server's HTTP/2 streams when they have closed. Node keeps the open streams of a
 * session in a Map, which allocates a new table from time to time, as slots.ts describes for a Set. Once an old
 * table is in V8's old generation, it keeps a large share of later streams alive until that generation is
 * collected. The streams themselves are small, but with @grpc/grpc-js their listeners hold the whole call.
 * Promoting and collecting all of these cost native gRPC a sixth of its speed.
 */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { EventEmitter } from "node:events";

/** Experimental in Node. Without this channel only the speed changes. */
const created = "http2.server.stream.created";

/** Applies to every HTTP/2 stream that this process serves from now on, on any port. A second call has no effect. */
export function releaseClosedStreams(): void {
  unsubscribe(created, watch);
  subscribe(created, watch);
}

function watch(message: unknown): void {
  if (typeof message !== "object" || message === null || !("stream" in message)) return;
  if (message.stream instanceof EventEmitter) message.stream.on("close", release);
}

/**
 * After `close` a stream emits no event that is needed, and above all no `error`, which without a listener would end
 * the process. All listeners of this `close` are still called, since `emit` calls those that were registered when it
 * began.
 */
function release(this: EventEmitter): void {
  // A listener of `removeListener` would be called for each of the others. Node has one, which counts listeners for
  // a session that the stream has left.
  this.removeAllListeners("removeListener");
  this.removeAllListeners();
}
