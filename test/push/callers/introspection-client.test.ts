/** Push's client of introspection against a server of gRPC by somebody else, and against one that breaks the protocol. */
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { create, toBinary } from "@bufbuild/protobuf";
import { Server, ServerCredentials, type ServerUnaryCall, status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { IntrospectResponseSchema } from "../../../gen/proto/auth/v1/introspection_pb.ts";
import {
  createIntrospectionClient,
  type Introspection,
  RefusedCredentialsError,
} from "../../../src/push/callers/introspection-client.ts";
import { frame, number, type Peer, settings, startRawServer } from "../../platform/http2/raw-server.ts";
import { code, goaway, literal, status200, type } from "../../platform/http2/wire-fixture.ts";
import { envelope } from "../../support/grpc-client.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { stopwatch } from "../../support/stopwatch.ts";

const path = "/auth.v1.IntrospectionService/Introspect";
const active = toBinary(
  IntrospectResponseSchema,
  create(IntrospectResponseSchema, { active: true, sub: "u-1", clientId: "app" }),
);
const caller = { sub: "u-1", clientId: "app" };

/** What a failed call throws: for the log the setting and the url, and the text of their cause. */
const unavailable = (cause: RegExp) => ({
  kind: { code: "unavailable", status: 503 },
  cause: {
    message: expect.stringMatching(/^PLATFORM_SECURITY_URL is https?:\/\/[^ ]+: the call failed$/),
    cause: { message: expect.stringMatching(cause) },
  },
});

function clientOf(url: string, apiKey = "the key of push"): Introspection {
  const client = createIntrospectionClient(url, apiKey);
  onTestFinished(() => client.close());
  return client;
}

describe("a server by @grpc/grpc-js", () => {
  type Handle = (call: ServerUnaryCall<Buffer, Buffer>) => Buffer | { code: status; details: string };

  /** @returns host and port */
  async function serve(handle: Handle, credentials = ServerCredentials.createInsecure()): Promise<string> {
    const server = new Server();
    const asItIs = { requestSerialize: same, requestDeserialize: same };
    const method = { path, requestStream: false, responseStream: false, ...asItIs };
    server.addService(
      { introspect: { ...method, responseSerialize: same, responseDeserialize: same } },
      {
        introspect(
          call: ServerUnaryCall<Buffer, Buffer>,
          respond: (error: object | null, response?: Buffer) => void,
        ) {
          const result = handle(call);
          if (Buffer.isBuffer(result)) respond(null, result);
          else respond(result);
        },
      },
    );
    const { promise, resolve, reject } = Promise.withResolvers<number>();
    server.bindAsync("127.0.0.1:0", credentials, (error, port) => (error ? reject(error) : resolve(port)));
    onTestFinished(() => server.forceShutdown());
    return `localhost:${await promise}`;
  }
  const same = (bytes: Buffer) => bytes;

  test("gets token, key and deadline, and its response is the caller; inactive is none", async () => {
    const calls: [metadata: unknown, request: string, timeoutMs: number][] = [];
    const host = await serve((call) => {
      const timeoutMs = Number(call.getDeadline()) - Date.now();
      calls.push([call.metadata.getMap(), call.request.toString("hex"), timeoutMs]);
      return calls.length === 1 ? Buffer.from(active) : Buffer.alloc(0);
    });
    const client = clientOf(`http://${host}`);
    expect(await client.introspect("t")).toEqual(caller);
    expect(await client.introspect("t")).toBeUndefined();
    expect(calls.length).toBe(2);
    for (const [metadata, request, timeoutMs] of calls) {
      expect([metadata, request]).toEqual([{ "x-api-key": "the key of push" }, "0a0174"]);
      expect(timeoutMs).toBeGreaterThan(1_000);
      expect(timeoutMs).toBeLessThanOrEqual(2_000);
    }
  });

  test("is called a thousand times at once, and each call gets its own response", async () => {
    const host = await serve(({ request }) => {
      const sub = request.subarray(2).toString();
      return Buffer.from(
        toBinary(IntrospectResponseSchema, create(IntrospectResponseSchema, { active: true, sub })),
      );
    });
    const client = clientOf(`http://${host}`);
    const tokens = Array.from({ length: 1_000 }, (_, index) => `t-${index}`);
    const found = await Promise.all(tokens.map((token) => client.introspect(token)));
    expect(found.map((one) => one?.sub)).toEqual(tokens);
  });

  test("that refuses the key is known for it at the start; other refusals are none of the key", async () => {
    let refusal = { code: status.UNAUTHENTICATED, details: "unknown key: ü" };
    const client = clientOf(`http://${await serve(() => refusal)}`);
    await expect(client.introspect("t")).rejects.toMatchObject(
      unavailable(/^16 UNAUTHENTICATED: unknown key: ü$/),
    );
    await expect(client.prepare()).rejects.toThrow(RefusedCredentialsError);
    refusal = { code: status.PERMISSION_DENIED, details: "not yours" };
    await expect(client.prepare()).rejects.toThrow(RefusedCredentialsError);
    refusal = { code: status.RESOURCE_EXHAUSTED, details: "too much" };
    await client.prepare();
    await expect(client.introspect("t")).rejects.toMatchObject(
      unavailable(/^8 RESOURCE_EXHAUSTED: too much$/),
    );
  });

  test("is called over TLS if Node.js trusts who signed its certificate", async () => {
    const { cert, key } = localhostCertificate;
    const pair = { cert_chain: Buffer.from(cert), private_key: Buffer.from(key) };
    const host = await serve(() => Buffer.from(active), ServerCredentials.createSsl(null, [pair]));
    await expect(clientOf(`https://${host}`).introspect("t")).rejects.toMatchObject(
      unavailable(/^14 UNAVAILABLE: DEPTH_ZERO_SELF_SIGNED_CERT$/),
    );
    const before = getCACertificates();
    onTestFinished(() => setDefaultCACertificates(before));
    setDefaultCACertificates([cert]);
    expect(await clientOf(`https://${host}`).introspect("t")).toEqual(caller);
  });
});

describe("a server that plays frame by frame", () => {
  const contentType = literal("content-type", "application/grpc");
  const head = (id: number, flags = 0x4, ...fields: Buffer[]) =>
    frame(type.headers, flags, id, Buffer.concat([status200, contentType, ...fields]));
  const data = (id: number, ...parts: Uint8Array[]) => frame(type.data, 0, id, Buffer.concat(parts));
  const trailers = (id: number, ...[status = "0", ...more]: string[]) =>
    frame(
      type.headers,
      0x5,
      id,
      Buffer.concat([status, ...more].map((each) => literal("grpc-status", each))),
    );
  const refusal = (id: number) => frame(type.rst, 0, id, number(code.refused));
  const message = envelope(active);
  const whole = (id: number) => [head(id), data(id, message), trailers(id)];

  async function serve(): Promise<{ client: Introspection; accept(): Promise<Peer> }> {
    const server = await startRawServer();
    onTestFinished(() => server.close());
    return { client: clientOf(server.origin), accept: server.accept };
  }

  /** A call that the server has. */
  async function called() {
    const { client, accept } = await serve();
    const result = client.introspect("t");
    result.catch(() => undefined);
    const peer = await accept();
    peer.send(settings());
    await peer.next(type.headers);
    return { client, accept, peer, result };
  }

  test("is believed if it sends one whole message, however that is cut", async () => {
    const { peer, result } = await called();
    const [first, second] = [message.subarray(0, 3), message.subarray(3)];
    peer.send(head(1), data(1, first), data(1), data(1, second), trailers(1));
    expect(await result).toEqual(caller);
  });

  test.each<[string, RegExp, Buffer[]]>([
    ["no trailers", /^2 UNKNOWN: /, [head(1), frame(type.data, 0x1, 1, message)]],
    [
      "a status before the message and no trailers",
      /^2 UNKNOWN: /,
      [head(1, 0x4, literal("grpc-status", "0")), frame(type.data, 0x1, 1, message)],
    ],
    [
      "trailers without a status",
      /^2 UNKNOWN: /,
      [head(1), data(1, message), frame(type.headers, 0x5, 1, literal("x-a", "b"))],
    ],
    ["a status that is no number", /^2 UNKNOWN: /, [head(1), data(1, message), trailers(1, "zero")]],
    ["a status with a zero before it", /^2 UNKNOWN: /, [head(1), data(1, message), trailers(1, "00")]],
    ["two statuses", /^2 UNKNOWN: /, [head(1), data(1, message), trailers(1, "0", "16")]],
    ["two statuses, OK last", /^2 UNKNOWN: /, [head(1), data(1, message), trailers(1, "16", "0")]],
    ["OK twice", /^2 UNKNOWN: /, [head(1), data(1, message), trailers(1, "0", "0")]],
    ["a message and a refusal", /^7 PERMISSION_DENIED: /, [head(1), data(1, message), trailers(1, "7")]],
    [
      "success without a message",
      /^13 INTERNAL: .* exactly one/,
      [head(1, 0x5, literal("grpc-status", "0"))],
    ],
    ["two messages", /^13 INTERNAL: .* exactly one/, [head(1), data(1, message, message), trailers(1)]],
    [
      "a truncated message",
      /^13 INTERNAL: .* exactly one/,
      [head(1), data(1, message.subarray(0, -1)), trailers(1)],
    ],
    [
      "a message that is compressed",
      /^13 INTERNAL: .* exactly one/,
      [head(1), data(1, envelope(active, 1)), trailers(1)],
    ],
    [
      "a message that is none",
      /protobuf|wire|EOF|premature|invalid/i,
      [head(1), data(1, envelope(Buffer.alloc(3, 0xff))), trailers(1)],
    ],
    [
      "more than it may",
      /^2 UNKNOWN: |^14 UNAVAILABLE: /,
      [head(1), ...Array.from({ length: 5 }, () => data(1, Buffer.alloc(16_000)))],
    ],
    [
      "another status of HTTP",
      /^14 UNAVAILABLE: .* 503$/,
      [
        frame(type.headers, 0x4, 1, Buffer.concat([literal(":status", "503"), contentType])),
        data(1, message),
        trailers(1),
      ],
    ],
    [
      "something that is not gRPC",
      /^2 UNKNOWN: .* 200$/,
      [frame(type.headers, 0x4, 1, status200), data(1, message), trailers(1)],
    ],
    [
      "a message, and leaves",
      /^14 UNAVAILABLE: /,
      [head(1), data(1, message), frame(type.rst, 0, 1, number(code.cancel))],
    ],
  ])("is not believed if it sends %s", async (_, cause, frames) => {
    const { peer, result } = await called();
    peer.send(...frames);
    await expect(result).rejects.toMatchObject(unavailable(cause));
    expect(peer.frames.filter((sent) => sent.type === type.headers).length).toBe(1);
  });

  test("gets a call again that it has refused, once", async () => {
    const { client, peer, result } = await called();
    peer.send(refusal(1));
    await peer.next(type.headers);
    peer.send(...whole(3));
    expect(await result).toEqual(caller);
    const given = client.introspect("t");
    given.catch(() => undefined);
    for (const id of [5, 7]) {
      await peer.next(type.headers);
      peer.send(refusal(id));
    }
    await expect(given).rejects.toMatchObject(unavailable(/^14 UNAVAILABLE: RST_STREAM 7$/));
  });

  test("does not get a call again that it may have processed", async () => {
    const { peer, result } = await called();
    peer.send(goaway(1, code.calm));
    peer.socket.end();
    await expect(result).rejects.toMatchObject(unavailable(/^14 UNAVAILABLE: GOAWAY 11$/));
  });

  test("that leaves gets the calls above its last one over the next connection, the others over this one", async () => {
    const { client, accept, peer, result: first } = await called();
    const second = client.introspect("t");
    await peer.next(type.headers);
    peer.send(goaway(1));
    const next = await accept();
    next.send(settings());
    await next.next(type.headers);
    next.send(...whole(1));
    expect(await second).toEqual(caller);
    peer.send(...whole(1));
    expect(await first).toEqual(caller);
  });

  test("gets the calls that came while the connection was being made", async () => {
    const { client, accept } = await serve();
    const early = [1, 2, 3].map(() => client.introspect("t"));
    const peer = await accept();
    await peer.next(type.settings);
    expect(peer.frames.some((sent) => sent.type === type.headers)).toBe(false);
    peer.send(settings());
    for (const id of [1, 3, 5]) {
      await peer.next(type.headers);
      peer.send(...whole(id));
    }
    expect(await Promise.all(early)).toEqual([caller, caller, caller]);
  });

  test("has two seconds, a refusal included", async () => {
    const { peer, result } = await called();
    const waited = stopwatch();
    peer.send(refusal(1));
    await peer.next(type.headers);
    await expect(result).rejects.toMatchObject(unavailable(/^4 DEADLINE_EXCEEDED: /));
    expect(waited()).toBeLessThan(2_600);
    expect(await peer.next(type.rst)).toMatchObject({ streamId: 3, payload: number(code.cancel) });
  });
});
