/**
 * What a refusal costs at least: a bare server that reads nothing of a request and answers that it cannot answer.
 *
 *   node bare-refusal.ts <http|grpc> <port>
 */
import { createServer } from "node:http";
import { createServer as createHttp2Server } from "node:http2";

const [protocol, port] = process.argv.slice(2);
const body = JSON.stringify({
  error: "temporarily_unavailable",
  error_description: "Try again in a moment.",
});
const headers = {
  "Content-Type": "application/json",
  "Cache-Control": "no-store",
  Pragma: "no-cache",
  "Retry-After": "1",
  "X-Request-Id": "00000000-0000-0000-0000-000000000000",
  "Content-Length": body.length,
};
const trailers = {
  ":status": 200,
  "content-type": "application/grpc+proto",
  "grpc-status": "14",
  "grpc-message": "Try%20again%20in%20a%20moment.",
  "retry-after": "1",
};
const ready = () => process.stdout.write("ready\n");
if (protocol === "grpc") {
  const server = createHttp2Server();
  // A response that ends before its request costs clients the connection (src/platform/door/early-responses.ts).
  server.on("stream", (stream) => {
    // Of a request that its client has given up there is nobody to tell.
    stream.on("error", () => undefined);
    stream.resume().once("end", () => stream.respond(trailers, { endStream: true }));
  });
  server.listen(Number(port), "127.0.0.1", ready);
} else {
  const server = createServer((_request, response) => response.writeHead(503, headers).end(body));
  server.listen(Number(port), "127.0.0.1", ready);
}
