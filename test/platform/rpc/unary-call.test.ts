/** What a unary call has beside its message reaches the caller of each protocol. */
import { once } from "node:events";
import { createServer } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import type { Server } from "node:net";
import { StringValueSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import { beforeAll, describe, expect, it } from "vitest";
import { HttpResponse } from "../../../src/platform/door/responses.ts";
import { createRpcHandler } from "../../../src/platform/rpc/handler.ts";
import { implement } from "../../../src/platform/rpc/service.ts";
import { UnaryCall } from "../../../src/platform/rpc/unary.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { CounterService } from "../../support/rpc-services.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

/** Says what it was asked, and fails if that is `fail`. */
const service = implement(CounterService, {
  async describe({ value }, call) {
    if (!(call instanceof UnaryCall)) throw new TypeError("no unary call");
    call.responseHeaders = { "x-header": ["one", "two"] };
    call.responseTrailers = { "x-trailer": "last", "x-trailer-bin": "AAE" };
    const details = [{ desc: StringValueSchema, value: { value: "detail" } }];
    if (value === "fail")
      call.stop(() => new ConnectError("So.", Code.Aborted, { "x-of-error": "yes" }, details));
    return { value: `${value} ${call.headers["x-asked-bin"]} ${call.metadata("x-asked-bin")}` };
  },
  async *count() {},
});
const { routes, unknown } = createRpcHandler({ ...recorder(), services: [service] });
const route = routes.find(({ path }) => path.endsWith("/Describe")) ?? unknown;

const http1 = createServer({ ServerResponse: HttpResponse }, (request, response) =>
  route.handle(request, response),
);
const http2 = createHttp2Server().on("stream", (stream, headers) => route.handleStream(stream, headers));

const cleanup = suiteCleanup();
beforeAll(async () => {
  for (const server of [http1, http2]) {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    cleanup.defer(() => void server.close());
  }
});

function urlOf(server: Server): string {
  const address = server.address();
  return `http://127.0.0.1:${typeof address === "object" && address ? address.port : 0}`;
}

describe.each([
  ["grpc", () => createGrpcTransport({ baseUrl: urlOf(http2) })],
  ...([createConnectTransport, createGrpcWebTransport] as const).flatMap((create) => [
    [`${create.name}, HTTP/1.1`, () => create({ baseUrl: urlOf(http1), httpVersion: "1.1" })] as const,
    [`${create.name}, HTTP/2`, () => create({ baseUrl: urlOf(http2), httpVersion: "2" })] as const,
  ]),
] as const)("%s", (protocol, transport) => {
  it("carries headers and trailers with a message", async () => {
    const got: Record<string, string | null> = {};
    const { value } = await createClient(CounterService, transport()).describe(
      { value: "asked" },
      {
        headers: { "x-asked-bin": "AAEC" },
        onHeader: (headers) => Object.assign(got, { header: headers.get("x-header") }),
        onTrailer: (trailers) =>
          Object.assign(got, { trailer: trailers.get("x-trailer"), bytes: trailers.get("x-trailer-bin") }),
      },
    );
    expect(value).toBe("asked AAEC undefined");
    expect(got).toEqual({ header: "one, two", trailer: "last", bytes: "AAE" });
  });

  it("carries metadata and details with an error", async () => {
    const calling = createClient(CounterService, transport()).describe({ value: "fail" });
    const error = ConnectError.from(await calling.catch((thrown: unknown) => thrown));
    expect(error).toMatchObject({ code: Code.Aborted, rawMessage: "So." });
    expect(error.findDetails(StringValueSchema)).toMatchObject([{ value: "detail" }]);
    expect(error.metadata.get("x-of-error")).toBe("yes");
    expect(error.metadata.get("x-trailer")).toBe("last");
    expect(protocol === "grpc" ? error.metadata.get("x-header") : "one, two").toBe("one, two");
  });
});
