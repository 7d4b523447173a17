/** A Hono app on a port of its own, and a way to send it what no HTTP client sends. */
import { once } from "node:events";
import { connect } from "node:net";
import { serve } from "@hono/node-server";
import type { Hono } from "hono";

export interface ServedApp {
  readonly port: number;
  /** http://127.0.0.1:port */
  readonly origin: string;
  /** Cuts what is still connected. */
  close(): Promise<void>;
}

export async function serveApp(app: Hono): Promise<ServedApp> {
  const { promise, resolve } = Promise.withResolvers<number>();
  const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, ({ port }) => resolve(port));
  const port = await promise;
  return {
    port,
    origin: `http://127.0.0.1:${port}`,
    async close() {
      const closed = once(server, "close");
      server.close();
      if ("closeAllConnections" in server) server.closeAllConnections();
      await closed;
    },
  };
}

/**
 * Sends bytes as they are and answers what comes back until the server closes the connection, so the
 * request should ask it to. A reset after the answer counts as a close.
 */
export async function exchange(port: number, request: string | Uint8Array): Promise<string> {
  const socket = connect({ port, host: "127.0.0.1" });
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  socket.on("error", () => undefined);
  socket.write(request);
  await once(socket, "close");
  return Buffer.concat(chunks).toString();
}
