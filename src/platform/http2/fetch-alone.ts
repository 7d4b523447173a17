import { once } from "node:events";
import http, { type IncomingMessage } from "node:http";
import https from "node:https";
import { buffer } from "node:stream/consumers";
import { openSocket } from "./socket.ts";

/**
 * Sends a request of HTTP/1.1 over a connection of its own: on one that was kept, a request could be lost, and what may
 * not be done twice cannot be repeated then. No redirect is followed.
 * @param sending called before the request is written
 */
export async function fetchAlone(request: Request, sending?: () => void): Promise<Response> {
  const { method, signal, url } = request;
  const body = Buffer.from(await request.arrayBuffer());
  const headers = Object.fromEntries(request.headers);
  const socket = await openSocket({ origin: new URL(url).origin, ca: undefined }, signal, "http/1.1");
  sending?.();
  const { request: send } = url.startsWith("https:") ? https : http;
  const outgoing = send(url, { method, headers, signal, createConnection: () => socket });
  // Once there is a response, an error is its body's too, and this one would end the process.
  outgoing.on("error", () => undefined);
  outgoing.end(body);
  const [incoming]: IncomingMessage[] = await once(outgoing, "response", { signal });
  if (!incoming) throw new Error("there is no response");
  const content = await buffer(incoming);
  return new Response(content.length > 0 ? content : null, {
    status: incoming.statusCode ?? 0,
    headers: { "content-length": `${content.length}` },
  });
}
