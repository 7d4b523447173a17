/** How long connections of the gRPC port last, and what ends them. */
import { once } from "node:events";
import { connect as connectHttp2 } from "node:http2";
import type { Socket } from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { createGrpcServer, type GrpcServerOptions } from "../../../src/platform/rpc/grpc-server.ts";
import { envelope } from "../../support/grpc-client.ts";
import { beginHttp2, callFrame, frame, resetRequests } from "../../support/reset-flood.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { silentCount, testServices } from "../../support/rpc-services.ts";
import { waitFor } from "../../support/wait-for.ts";

const path = "/auth.v1.IntrospectionService/Introspect";
const types = { headers: 1, reset: 3, settings: 4, ping: 6, goaway: 7 };
const enhanceYourCalm = 11;

async function start(options: Partial<GrpcServerOptions> = {}) {
  const { services, seen } = testServices();
  const grpc = createGrpcServer({ ...recorder(), ...options });
  grpc.serve(services);
  const port = await grpc.listen("127.0.0.1", 0);
  onTestFinished(() => grpc.close(0));
  return { grpc, port, seen };
}

/** A client by `node:http2`, with what it is told. */
async function startSession(port: number) {
  const session = connectHttp2(`http://127.0.0.1:${port}`);
  onTestFinished(() => session.destroy());
  const goaways: { code: number; last: number }[] = [];
  session.on("goaway", (code, last) => goaways.push({ code, last }));
  session.on("error", () => undefined);
  await once(session, "remoteSettings");
  const call = (target: string, message: Buffer) => {
    const headers = {
      ":method": "POST",
      ":path": target,
      "content-type": "application/grpc",
      te: "trailers",
    };
    const stream = session.request(headers).on("error", () => undefined);
    stream.end(envelope(message));
    return stream;
  };
  return { session, goaways, call };
}

/** The frames that a connection receives, as types and payloads. */
function framesOf(socket: Socket): { readonly type: number; readonly payload: Buffer }[] {
  const frames: { type: number; payload: Buffer }[] = [];
  let unread = Buffer.alloc(0);
  socket.on("data", (bytes: Buffer) => {
    unread = Buffer.concat([unread, bytes]);
    while (unread.length >= 9 && unread.length >= 9 + unread.readUIntBE(0, 3)) {
      const end = 9 + unread.readUIntBE(0, 3);
      frames.push({ type: unread.readUInt8(3), payload: unread.subarray(9, end) });
      unread = unread.subarray(end);
    }
  });
  return frames;
}

const times = { pingMs: 60_000, ackMs: 20_000, idleMs: 600_000 };

/** An introspection, by its token: field 1. */
const token = (text: string) => Buffer.concat([Buffer.from([0x0a, text.length]), Buffer.from(text)]);

describe("a connection without streams", () => {
  it("is closed by GOAWAY when it has been idle, and not before", async () => {
    const { port, seen } = await start({ connections: { ...times, idleMs: 1_000 } });
    const { session, goaways, call } = await startSession(port);
    const stream = call(path, token("silent"));
    await waitFor(() => expect(seen.asked).toEqual(["silent"]));
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    expect(goaways).toEqual([]);
    stream.close();
    await once(session, "close");
    expect(goaways[0]).toEqual({ code: 0, last: 1 });
  });
});

describe("a connection of a greatest age", () => {
  it("is closed by GOAWAY at that age, and its calls finish", async () => {
    const { port } = await start({ maxConnectionAgeMs: 100 });
    const { session, goaways, call } = await startSession(port);
    const [trailers] = await once(call(path, token("slow")).resume(), "trailers");
    expect(trailers).toMatchObject({ "grpc-status": "0" });
    expect(goaways).toContainEqual({ code: 0, last: 1 });
    await once(session, "close");
  });
});

describe("a client that is gone without a word", () => {
  it("is asked by PING, and its connection is closed if there is no acknowledgement", async () => {
    const { port } = await start({ connections: { ...times, pingMs: 100, ackMs: 100 } });
    const socket = await beginHttp2(port, false);
    socket.write(frame(types.settings, 1, 0, Buffer.alloc(0)));
    const frames = framesOf(socket);
    await once(socket, "close");
    expect(frames.map(({ type }) => type)).toContain(types.ping);
  });

  it("stays connected while it acknowledges", async () => {
    const { port } = await start({ connections: { ...times, pingMs: 50, ackMs: 50 } });
    const { session, call } = await startSession(port);
    for (let pings = 0; pings < 4; pings += 1) await once(session, "ping");
    await once(call(path, token("active")).resume(), "trailers");
    expect(session.closed).toBe(false);
  });
});

it("a client that does not acknowledge the settings is cut", async () => {
  const { port } = await start({ connections: { ...times, ackMs: 200 } });
  const socket = await beginHttp2(port, false);
  await once(socket, "close");
});

describe("streams of a connection that are reset", () => {
  /** Requests whose headers come twice, which is an error of the protocol: the server has to reset them. */
  const provoking = (count: number, from = 0) =>
    Buffer.concat(
      Array.from({ length: count }, (_, n) => 2 * (from + n) + 1).flatMap((id) => [
        callFrame(id, path),
        callFrame(id, path),
      ]),
    );

  it.each([
    ["by the client", resetRequests(1_500, path)],
    ["for the client's errors", provoking(1_500)],
    ["by both", Buffer.concat([resetRequests(700, path), provoking(700, 700)])],
  ])("%s end it with ENHANCE_YOUR_CALM, if there are too many", async (_, flood) => {
    const { port } = await start();
    const socket = await beginHttp2(port, false);
    const frames = framesOf(socket);
    socket.write(flood);
    await once(socket, "close");
    const codes = frames
      .filter(({ type }) => type === types.goaway)
      .map((one) => one.payload.readUInt32BE(4));
    expect(codes[0]).toBe(enhanceYourCalm);
  });

  it("may be as many as there are streams", async () => {
    const { port } = await start();
    const { session, call } = await startSession(port);
    const streams = Array.from({ length: 900 }, () => call(path, token("silent")));
    await new Promise<void>((resolve) => session.ping(() => resolve()));
    for (const stream of streams) stream.close(8);
    await once(call(path, token("active")).resume(), "trailers");
    expect(session.closed).toBe(false);
  });

  it("are not counted where the server chose it", async () => {
    const { port } = await start({ stalls: { requestMs: 60, responseMs: 60_000 } });
    const { session } = await startSession(port);
    const headers = { ":method": "POST", ":path": `${path}s`, "content-type": "application/grpc" };
    for (let round = 0; round < 3; round += 1) {
      // The response comes before the request ends, which it never does.
      const ended = Array.from({ length: 500 }, () =>
        once(
          session
            .request(headers)
            .on("error", () => undefined)
            .resume(),
          "close",
        ),
      );
      await Promise.all(ended);
    }
    expect(session.closed).toBe(false);
  });
});

describe("the end of the server", () => {
  it("is announced by GOAWAY, while a unary call finishes and a stream ends with UNAVAILABLE", async () => {
    const { grpc, port, seen } = await start();
    const { session, goaways, call } = await startSession(port);
    const slow = call(path, token("slow")).resume();
    // Field 1 of UInt32Value, as a varint.
    const count = call("/gatepost.test.v1.CounterService/Count", varint(silentCount)).resume();
    await waitFor(() => expect(seen).toMatchObject({ asked: ["slow"], yielded: 1 }));
    const ended = [slow, count].map(async (stream) => (await once(stream, "trailers"))[0]["grpc-status"]);
    const closing = grpc.close(5_000);
    await waitFor(() => expect(goaways[0]).toEqual({ code: 0, last: 3 }));
    expect(await Promise.all(ended)).toEqual(["0", "14"]);
    await closing;
    expect(session.destroyed).toBe(true);
  });
});

function varint(value: number): Buffer {
  const bytes = [0x08];
  for (let rest = value; ; rest >>= 7) {
    if (rest < 128) return Buffer.from([...bytes, rest]);
    bytes.push((rest & 127) | 128);
  }
}
