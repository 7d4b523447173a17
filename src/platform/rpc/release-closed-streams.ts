/**
 * Takes all listeners off a server's HTTP/2 streams when they have closed. Node keeps the open streams of a session
 * in a Map, which makes itself a new table every so often, as slots.ts tells of a Set: once an old table is in
 * V8's old generation, it keeps alive a large share of the streams that came after it, until that generation is
 * collected. The streams themselves are small. What listens to those of @grpc/grpc-js is the whole call, and
 * promoting and collecting all of these cost native gRPC a sixth of its speed.
 */
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { EventEmitter } from "node:events";

/** Experimental in Node: without it nothing changes but the speed. */
const created = "http2.server.stream.created";

/** For every HTTP/2 stream that this process serves from now on, on whatever port. A second call changes nothing. */
export function releaseClosedStreams(): void {
  unsubscribe(created, watch);
  subscribe(created, watch);
}

function watch(message: unknown): void {
  if (typeof message !== "object" || message === null || !("stream" in message)) return;
  if (message.stream instanceof EventEmitter) message.stream.on("close", release);
}

/**
 * After its `close` a stream emits nothing that anyone waits for; above all no `error`, which would end the process
 * now that nobody listens. All who listen for this `close` are still told of it, as an event goes to those who
 * listened when it began.
 */
function release(this: EventEmitter): void {
  // Whoever listens for removals would be told of each of the others: that is Node, which counts listeners for a
  // session that the stream has left.
  this.removeAllListeners("removeListener");
  this.removeAllListeners();
}
