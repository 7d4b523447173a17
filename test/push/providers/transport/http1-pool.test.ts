/** Requests over HTTP/1.1: to the pool's origin and nowhere else, whatever their path is. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { Http1Pool } from "../../../../src/push/providers/transport/http1-pool.ts";

interface Server {
  readonly host: string;
  readonly asked: string[];
  close(): Promise<unknown>;
}

async function startServer(address: string): Promise<Server> {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(`${request.headers.host} ${request.url}`);
    request.resume().on("end", () => response.writeHead(201).end());
  });
  await new Promise<void>((resolve) => server.listen(0, address, resolve));
  const { port, family } = server.address() as AddressInfo;
  return {
    host: family === "IPv6" ? `[${address}]:${port}` : `${address}:${port}`,
    asked,
    close: () => new Promise((resolve) => server.close(resolve)),
  };
}

const poolOf = ({ host }: Server) =>
  new Http1Pool({ origin: `http://${host}`, maxSockets: 5, idleMs: 1_000, timeoutMs: 5_000 });
const headersWith = (path: string) => [":method", "POST", ":scheme", "http", ":path", path, "ttl", "60"];

let service: Server;
let other: Server;
let pool: Http1Pool;
beforeAll(async () => {
  service = await startServer("127.0.0.1");
  other = await startServer("127.0.0.1");
  pool = poolOf(service);
});
afterEach(() => {
  service.asked.length = 0;
  other.asked.length = 0;
});
afterAll(async () => {
  await pool.close();
  await service.close();
  await other.close();
});

test.each(["//<other>/x", "http://<other>/x", "/..//<other>/x", "//", "/a?b=c"])(
  "is asked of the origin as it is: %s",
  async (form) => {
    const path = form.replace("<other>", other.host);
    expect(await pool.request(headersWith(path), "body")).toMatchObject({ responded: true, status: 201 });
    expect(service.asked).toEqual([`${service.host} ${path}`]);
    expect(other.asked).toEqual([]);
  },
);

test("what cannot be asked is no answer, and the pool goes on and closes", async () => {
  const own = poolOf(service);
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on("unhandledRejection", note);
  expect(await own.request(headersWith("/a b"), "body")).toEqual({
    responded: false,
    cause: "lost",
    reason: "ERR_UNESCAPED_CHARACTERS",
  });
  expect(await own.request([...headersWith("/"), "x", "a\nb"], "body")).toMatchObject({ responded: false });
  expect(await own.request(headersWith("/"), "body")).toMatchObject({ status: 201 });
  await own.close();
  await new Promise(setImmediate);
  process.off("unhandledRejection", note);
  expect(unhandled).toEqual([]);
});

test("an origin with an IPv6 address is reached", async () => {
  const six = await startServer("::1");
  const own = poolOf(six);
  expect(await own.request(headersWith("/x"), "body")).toMatchObject({ status: 201 });
  expect(six.asked).toEqual([`${six.host} /x`]);
  await own.close();
  await six.close();
});
