/** The connections of a server that are open, and the limits of those of HTTP/2. */
import type { EventEmitter } from "node:events";
import type { Http2SecureServer, ServerHttp2Session } from "node:http2";
import type { Server } from "node:net";
import { limitResets } from "./resets.ts";

interface SessionLimits {
  /** Streams that a client may have open, all of which it may give up at once. */
  readonly maxConcurrentStreams: number;
  /** Milliseconds, more or less a tenth; undefined: any age. Clients stay with one process that long. */
  readonly maxAgeMs: number | undefined;
}

/** Holds the sessions of a server to the limits. @returns those that are open */
export function openSessions(
  server: Server | Http2SecureServer,
  { maxConcurrentStreams, maxAgeMs }: SessionLimits,
): ReadonlySet<ServerHttp2Session> {
  const open = new Set<ServerHttp2Session>();
  server.on("session", (session: ServerHttp2Session) => {
    keepWhileOpen(open, session);
    limitResets(session, maxConcurrentStreams);
    if (maxAgeMs !== undefined) closeAtAge(session, maxAgeMs);
  });
  return open;
}

export function keepWhileOpen<T extends EventEmitter>(open: Set<T>, connection: T): void {
  open.add(connection);
  connection.once("close", () => open.delete(connection));
}

/**
 * Closes the connection by GOAWAY: its streams end as they will, and its client connects anew. Streams that are on their
 * way then are not processed, which their client can tell by GOAWAY. A first GOAWAY without a last stream (RFC 9113
 * section 6.8) would save them, but after any GOAWAY of node:http2, also one that names the highest stream, no more
 * streams are taken.
 */
function closeAtAge(session: ServerHttp2Session, maxAgeMs: number): void {
  const timer = setTimeout(() => session.close(), maxAgeMs * (0.9 + Math.random() / 5)).unref();
  session.once("close", () => clearTimeout(timer));
}
