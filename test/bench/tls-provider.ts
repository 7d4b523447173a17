/**
 * A light stand-in for FCM and APNs: over TLS it responds to every message alike, after a delay, and looks at nothing
 * but the path, so that the sender is measured. At `/token` it gives access tokens. The port after it, without TLS, says
 * `{count, firstAt, lastAt}` of the messages so far; milliseconds since the epoch.
 *
 *   node tls-provider.ts <port> <milliseconds>
 */
import { createServer } from "node:http";
import { createSecureServer, type ServerHttp2Stream } from "node:http2";
import { localhostCertificate } from "../support/localhost-certificate.ts";

const [port = 0, delay = 0] = process.argv.slice(2).map(Number);
const figures = { count: 0, firstAt: 0, lastAt: 0 };

const accessToken = JSON.stringify({
  access_token: "t".repeat(900),
  expires_in: 3_600,
  token_type: "Bearer",
});
const accepted = '{"name":"projects/my-project/messages/0:1500415314455276%31bd1c9631bd1c96"}';
const json = { ":status": 200, "content-type": "application/json; charset=UTF-8" };

function respond(stream: ServerHttp2Stream, path = ""): void {
  if (stream.closed) return;
  if (path === "/token") {
    stream.respond(json);
    stream.end(accessToken);
    return;
  }
  figures.lastAt = Date.now();
  figures.firstAt ||= figures.lastAt;
  figures.count += 1;
  if (path.startsWith("/3/device/")) stream.respond({ ":status": 200 }, { endStream: true });
  else {
    stream.respond(json);
    stream.end(accepted);
  }
}

// Senders have 100 streams at once; a lower limit here would refuse some that end just now.
const provider = createSecureServer({ ...localhostCertificate, settings: { maxConcurrentStreams: 1_000 } });
provider.on("sessionError", () => {});
provider.on("stream", (stream, { ":path": path }) => {
  stream.on("error", () => {});
  stream.on("end", () => (delay ? setTimeout(respond, delay, stream, path) : respond(stream, path)));
  stream.resume();
});
provider.listen(port, "127.0.0.1");
createServer((_request, response) => response.end(JSON.stringify(figures))).listen(port + 1, "127.0.0.1");
process.on("SIGTERM", () => process.exit(0));
