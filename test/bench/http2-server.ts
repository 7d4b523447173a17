/**
 * A light stand-in for a push provider: over TLS, it responds to every request alike, after a delay.
 *
 *   node http2-server.ts <port> <milliseconds>
 */
import { createSecureServer } from "node:http2";
import { localhostCertificate } from "../support/localhost-certificate.ts";

const [port, delay] = process.argv.slice(2).map(Number);
// Clients have 100 streams at once; a lower limit here would refuse some that end just now.
const server = createSecureServer({ ...localhostCertificate, settings: { maxConcurrentStreams: 1_000 } });
server.on("sessionError", () => {});
server.on("stream", (stream) => {
  stream.on("error", () => {});
  const respond = () => {
    stream.respond({ ":status": 200, "content-type": "application/json; charset=UTF-8" });
    stream.end('{"name":"projects/my-project/messages/0:1500415314455276%31bd1c9631bd1c96"}');
  };
  stream.resume();
  if (delay) setTimeout(respond, delay);
  else stream.on("end", respond);
});
server.listen(port, "127.0.0.1");
process.on("SIGTERM", () => process.exit(0));
