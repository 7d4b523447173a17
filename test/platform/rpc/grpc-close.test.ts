/** The end of a gRPC server: what is in flight, streams, and clients that have another server. */
import { once } from "node:events";
import { join } from "node:path";
import { status } from "@grpc/grpc-js";
import { describe, expect, it } from "vitest";
import { createGrpcServer } from "../../../src/platform/rpc/grpc-server.ts";
import { GrpcClient, loadMethod } from "../../support/grpc-client.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { silentCount, testServices } from "../../support/rpc-services.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { waitFor } from "../../support/wait-for.ts";

const root = join(import.meta.dirname, "../../..");
const service = "auth.v1.IntrospectionService";
const introspect = loadMethod("auth/v1/introspection.proto", service, "Introspect", [join(root, "proto")]);
const healthProto = join(root, "proto/grpc/health/v1/health.proto");
const countProto = join(import.meta.dirname, "../../support/proto/counter.proto");
const count = loadMethod(countProto, "gatepost.test.v1.CounterService", "Count");

function serving(options: ReturnType<typeof recorder>, services = testServices().services) {
  const server = createGrpcServer(options);
  server.serve(services);
  return server;
}

describe("close", () => {
  async function start() {
    const { services, seen } = testServices();
    const record = recorder();
    const server = serving(record, services);
    const port = await server.listen("127.0.0.1", 0);
    server.setServing(true);
    return { server, seen, record, port, caller: new GrpcClient(port) };
  }

  it("lets calls in flight finish, and takes no more", async () => {
    const { server, seen, caller, port } = await start();
    const calling = caller.unary(introspect, { token: "slow" });
    await waitFor(() => expect(seen.asked).toEqual(["slow"]));
    const closing = server.close(5_000);
    expect(await calling).toEqual({});
    await closing;
    const late = new GrpcClient(port);
    await expect(late.unary(introspect, { token: "active" })).rejects.toMatchObject({
      code: status.UNAVAILABLE,
    });
    late.close();
    caller.close();
  });

  it("ends streams and health watches at once", async () => {
    const { server, seen, caller } = await start();
    const watching = caller.serverStream(loadMethod(healthProto, "grpc.health.v1.Health", "Watch"), {
      service,
    });
    const counting = caller.serverStream(count, { value: silentCount });
    const begun = [watching, counting].map((stream) => once(stream, "data"));
    const ends = [watching, counting].map(async (stream) => {
      await once(stream, "data");
      stream.resume();
      const [error] = await once(stream, "error").catch((thrown: unknown) => [thrown]);
      return error;
    });
    await Promise.all(begun);
    const before = stopwatch();
    await server.close(5_000);
    expect(before()).toBeLessThan(1_000);
    expect(await Promise.all(ends)).toMatchObject([
      { code: status.UNAVAILABLE },
      { code: status.UNAVAILABLE },
    ]);
    expect(seen.closedStreams).toBe(1);
    caller.close();
  });

  it("ends the rest when the grace is over", async () => {
    const { server, seen, caller, record } = await start();
    const calling = [
      caller.unary(introspect, { token: "silent" }),
      caller.unary(introspect, { token: "deaf" }),
    ];
    const answers = Promise.allSettled(calling);
    await waitFor(() => expect(seen.asked.toSorted()).toEqual(["deaf", "silent"]));
    await server.close(200);
    for (const answer of await answers) {
      expect(answer).toMatchObject({ status: "rejected", reason: { code: status.UNAVAILABLE } });
    }
    expect(seen.aborted).toHaveLength(1);
    expect(record.completed.map(({ code }) => code)).toEqual(["unavailable", "unavailable"]);
    caller.close();
  });

  it("fails no call of a client that has another server", async () => {
    const { server, caller, port } = await start();
    caller.close();
    const other = serving({ ...recorder() });
    const balanced = new GrpcClient([port, await other.listen("127.0.0.1", 0)]);
    let ended = false;
    let answered = 0;
    const load = Array.from({ length: 50 }, async () => {
      for (; !ended; answered++) await balanced.unary(introspect, { token: "active" });
    });
    await waitFor(() => expect(answered).toBeGreaterThan(100));
    const before = answered;
    await server.close(5_000);
    await waitFor(() => expect(answered).toBeGreaterThan(before + 100));
    ended = true;
    await Promise.all(load);
    balanced.close();
    await other.close(100);
  });
});
