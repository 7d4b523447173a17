/** Our client and Node's against three servers of HTTP/2: Node's, nghttp2's, and Go's. */
import { createSecureServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { beforeAll, describe, expect, test } from "vitest";
import type { Connection } from "../../../src/platform/http2/connection.ts";
import { http2Clients } from "../../support/http2-clients.ts";
import { findGo, findNghttpd, startGoServer, startNghttpd } from "../../support/http2-programs.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Followed, follow, post } from "./client-fixture.ts";

interface Running {
  readonly origin: string;
  stop(): Promise<unknown>;
}

async function startNode(): Promise<Running> {
  const server = createSecureServer({ ...localhostCertificate, settings: { maxConcurrentStreams: 20 } });
  server.on("stream", (stream) => {
    stream.respond({ ":status": 200 });
    stream.pipe(stream);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return { origin: `https://localhost:${port}`, stop: () => new Promise((resolve) => server.close(resolve)) };
}

let goServer: Promise<Running> | undefined;

/** One for the whole file: it has to be compiled. */
function goOnce(): Promise<Running> {
  goServer ??= startGoServer();
  return goServer;
}
const atEnd = suiteCleanup();
beforeAll(() => atEnd.defer(async () => void (await goServer)?.stop()));

const shared = [
  ...[":method", "POST", ":scheme", "https", ":authority", "push.example.com"],
  ...["content-type", "application/json", "authorization", `Bearer ${"t".repeat(900)}`],
];

type Client = keyof typeof http2Clients;

async function open(client: Client, origin: string): Promise<Followed> {
  const followed = follow(http2Clients[client], origin, localhostCertificate.cert);
  await followed.opened;
  return followed;
}

/** Sends bodies of all sizes, as many at once as the server allows, and compares what comes back. */
async function echo(connection: Connection, atOnce: number): Promise<void> {
  const sizes = [0, 1, 400, 400, 400, 4_096, 16_384, 16_385, 70_000, 200_000];
  const bodies = Array.from({ length: 60 }, (_, index) =>
    Buffer.alloc(sizes[index % sizes.length] ?? 0, `${index}.`).toString("latin1"),
  );
  const worker = async (): Promise<void> => {
    for (let body = bodies.pop(); body !== undefined; body = bodies.pop()) {
      const { status, body: returned } = await post(connection, { path: "/echo", shared }, body).result;
      expect(status).toBe(200);
      expect(returned === body, `${returned.length} bytes of ${body.length}`).toBe(true);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
}

const servers: [name: string, isHere: boolean, start: () => Promise<Running>][] = [
  ["Node", true, startNode],
  ["nghttpd", findNghttpd() !== undefined, () => startNghttpd(["--max-concurrent-streams=20"])],
  [
    "nghttpd with small tables and windows, padding and trailers",
    findNghttpd() !== undefined,
    () =>
      startNghttpd([
        ...["--header-table-size=64", "--encoder-header-table-size=0", "--window-bits=10"],
        ...["--connection-window-bits=16", "--padding=100", "--trailer=x-trailer: 1"],
      ]),
  ],
  ["Go", findGo() !== undefined, async () => ({ ...(await goOnce()), stop: async () => undefined })],
];

describe.each(servers)("with the server %s", (_, isHere, start) => {
  let server: Running;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    if (!isHere) return;
    server = await start();
    cleanup.defer(async () => void (await server.stop()));
  });

  test.runIf(isHere).each(["own", "node"] as const)(
    "bodies arrive as they are, by the client %s",
    async (client) => {
      const { connection, closed, limits } = await open(client, server.origin);
      await echo(connection, Math.min(20, limits[0] ?? 20));
      connection.close();
      await closed;
    },
  );
});

describe.runIf(findGo() !== undefined)("Go's server", () => {
  let followed: Followed;
  beforeAll(async () => {
    followed = await open("own", (await goOnce()).origin);
  });

  test("reads the fields as they were meant, the first time and when they are indexed", async () => {
    for (let time = 0; time < 3; time += 1) {
      const head = { path: `/fields?${time}`, shared, own: ["x-own", `ü ${time}`] };
      const { body } = await post(followed.connection, head, "{}").result;
      expect(JSON.parse(body)).toMatchObject({
        method: "POST",
        path: `/fields?${time}`,
        authority: "push.example.com",
        protocol: "HTTP/2.0",
        fields: {
          "Content-Type": ["application/json"],
          Authorization: [`Bearer ${"t".repeat(900)}`],
          "X-Own": [expect.stringMatching(/^.{1,2} \d$/)],
        },
      });
    }
  });

  test("may send interim responses first", async () => {
    const { status, fields, body } = await post(followed.connection, { path: "/hints", shared }, "fine")
      .result;
    expect([status, body, fields?.get("content-type")]).toEqual([200, "fine", "text/plain; charset=utf-8"]);
  });

  test("may reset a stream: then it is not known whether it was processed", async () => {
    const { status, end } = await post(followed.connection, { path: "/reset", shared }, "x").result;
    expect(status).toBeUndefined();
    expect(end).toMatchObject({ resetCode: expect.any(Number), isUnprocessed: false });
  });

  test("may leave: what it has is answered, and the connection closes", async () => {
    const { connection, retired, closed } = followed;
    const last = post(connection, { path: "/leave", shared }, "fine");
    await retired;
    expect(connection.isOpen).toBe(false);
    expect(await last.result).toMatchObject({ status: 200, body: "fine" });
    await closed;
  });
});
