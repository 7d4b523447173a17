/** Requests over HTTP/1.1: to the pool's origin and nowhere else, whatever their path is. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, beforeAll, expect, test } from "vitest";
import { Http1Pool } from "../../../../src/push/providers/webpush/http1-pool.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

interface Server {
  readonly host: string;
  readonly asked: string[];
  close(): Promise<void>;
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
    close: () => server[Symbol.asyncDispose](),
  };
}

const poolOf = ({ host }: Server) =>
  new Http1Pool({ origin: `http://${host}`, maxSockets: 5, idleMs: 1_000, timeoutMs: 5_000 });
const headWith = (path: string) => ({
  path,
  shared: [":method", "POST", ":scheme", "http"],
  own: ["ttl", "60"],
});

let service: Server;
let other: Server;
let pool: Http1Pool;
const cleanup = suiteCleanup();
beforeAll(async () => {
  service = await startServer("127.0.0.1");
  cleanup.defer(() => service.close());
  other = await startServer("127.0.0.1");
  cleanup.defer(() => other.close());
  pool = poolOf(service);
  cleanup.defer(() => pool.close());
});
afterEach(() => {
  service.asked.length = 0;
  other.asked.length = 0;
});

test.each(["//<other>/x", "http://<other>/x", "/..//<other>/x", "//", "/a?b=c"])(
  "is asked of the origin as it is: %s",
  async (form) => {
    const path = form.replace("<other>", other.host);
    expect(await pool.request(headWith(path), "body")).toMatchObject({ responded: true, status: 201 });
    expect(service.asked).toEqual([`${service.host} ${path}`]);
    expect(other.asked).toEqual([]);
  },
);

test("what cannot be asked is no answer, and the pool goes on and closes", async () => {
  const own = poolOf(service);
  const unhandled: unknown[] = [];
  const note = (reason: unknown) => unhandled.push(reason);
  process.on("unhandledRejection", note);
  expect(await own.request(headWith("/a b"), "body")).toEqual({
    responded: false,
    cause: "lost",
    reason: "ERR_UNESCAPED_CHARACTERS",
  });
  expect(await own.request({ ...headWith("/"), own: ["x", "a\nb"] }, "body")).toMatchObject({
    responded: false,
  });
  expect(await own.request(headWith("/"), "body")).toMatchObject({ status: 201 });
  await own.close();
  await new Promise(setImmediate);
  process.off("unhandledRejection", note);
  expect(unhandled).toEqual([]);
});

test("an origin with an IPv6 address is reached", async () => {
  const six = await startServer("::1");
  const own = poolOf(six);
  expect(await own.request(headWith("/x"), "body")).toMatchObject({ status: 201 });
  expect(six.asked).toEqual([`${six.host} /x`]);
  await own.close();
  await six.close();
});
