/** Clients of server reflection that ask and do not read, or ask without end. */
import { once } from "node:events";
import { type ClientHttp2Session, type ClientHttp2Stream, connect } from "node:http2";
import { describe, expect, it, onTestFinished } from "vitest";
import { createGrpcServer } from "../../../src/platform/rpc/grpc-server.ts";
import { envelope } from "../../support/grpc-client.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { testServices } from "../../support/rpc-services.ts";
import { atRest, waitFor } from "../../support/wait-for.ts";

const file = "auth/v1/introspection.proto";
/** ServerReflectionRequest: field 3, file_by_filename. */
const request = envelope(Buffer.concat([Buffer.from([0x1a, file.length]), Buffer.from(file)]));

const log = recorder();

async function startReflection(stalls = { requestMs: 30_000, responseMs: 30_000 }): Promise<number> {
  const grpc = createGrpcServer({ ...log, stalls });
  grpc.serve(testServices().services);
  const port = await grpc.listen("127.0.0.1", 0);
  onTestFinished(() => grpc.close(100));
  return port;
}

/** A stream of reflection on a connection whose responses have no window. */
function beginReflection(port: number): { session: ClientHttp2Session; stream: ClientHttp2Stream } {
  const session = connect(`http://127.0.0.1:${port}`, { settings: { initialWindowSize: 0 } });
  onTestFinished(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "content-type": "application/grpc",
    te: "trailers",
  });
  stream.on("error", () => undefined);
  return { session, stream };
}

/** The number of complete messages among the bytes. */
function messagesIn(bytes: Buffer): number {
  let count = 0;
  for (let at = 0; at + 5 <= bytes.length; at += 5 + bytes.readUInt32BE(at + 1)) count += 1;
  return count;
}

describe("a client of reflection that asks without end and reads nothing", () => {
  it("is not read from any more, and gets all responses once it reads", async () => {
    const { session, stream } = beginReflection(await startReflection());
    const requests = 40_000;
    const perWrite = 500;
    const bytes = Buffer.concat(Array.from({ length: perWrite }, () => request));
    let sent = 0;
    for (let written = 0; written < requests; written += perWrite) {
      stream.write(bytes, () => {
        sent += perWrite;
      });
    }
    // What the windows of a stream take, and the buffers of both ends.
    expect(await atRest(() => sent)).toBeLessThan(requests / 4);
    const received: Buffer[] = [];
    stream.on("data", (part: Buffer) => received.push(part));
    const ended = once(stream, "end");
    stream.end();
    session.settings({ initialWindowSize: 1_000_000 });
    await ended;
    expect(messagesIn(Buffer.concat(received))).toBe(requests);
  });

  it("is cut, however slowly it asks", async () => {
    const { stream } = beginReflection(await startReflection({ requestMs: 200, responseMs: 200 }));
    const asking = setInterval(() => stream.write(request), 20);
    onTestFinished(() => clearInterval(asking));
    await waitFor(() => expect(stream.closed).toBe(true));
    expect(stream.rstCode).toBe(8);
    // What the client has done to itself is no defect.
    expect(log.lines.filter((line) => line.includes("A method failed"))).toEqual([]);
  });
});

it("is reset when its request has had its time, though it reads", async () => {
  const { session, stream } = beginReflection(await startReflection({ requestMs: 200, responseMs: 30_000 }));
  session.settings({ initialWindowSize: 1_000_000 });
  stream.on("data", () => stream.write(request));
  stream.write(request);
  await once(stream, "close");
  expect(stream.rstCode).toBe(8);
});
