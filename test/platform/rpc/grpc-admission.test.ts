/** What counts as in flight on the gRPC port. */
import { once } from "node:events";
import { connect, type IncomingHttpHeaders } from "node:http2";
import { expect, it, onTestFinished } from "vitest";
import { envelope } from "../../support/grpc-client.ts";
import { startSheddableServers } from "../../support/sheddable-servers.ts";
import { waitFor } from "../../support/wait-for.ts";

it.each(["its caller has gone", "its deadline has passed"])(
  "a call counts for as long as its method works, though %s",
  async (why) => {
    let introspecting = 0;
    const servers = await startSheddableServers({
      introspecting() {
        introspecting += 1;
      },
    });
    const inFlight = () => servers.metric('sample_requests_in_flight{priority="high"}');
    const session = connect(`http://127.0.0.1:${servers.grpcPort}`);
    onTestFinished(() => session.destroy());
    const stream = session.request({
      ":method": "POST",
      ":path": "/auth.v1.IntrospectionService/Introspect",
      "content-type": "application/grpc",
      te: "trailers",
      ...(why === "its deadline has passed" && { "grpc-timeout": "200m" }),
    });
    stream.end(envelope(Buffer.alloc(0)));
    await waitFor(() => expect(introspecting).toBe(1));
    if (why === "its caller has gone") stream.close(8);
    else expect((await once(stream, "response"))[0]).toMatchObject({ "grpc-status": "4" });
    // The server has seen the reset once it has responded to what was sent after it.
    await new Promise<void>((resolve) => session.ping(() => resolve()));
    expect(await inFlight()).toBe(1);
    servers.release();
    await waitFor(async () => expect(await inFlight()).toBe(0));
  },
);

it("an error that is known before its request has ended ends no sooner than that", async () => {
  const { grpcPort } = await startSheddableServers();
  const session = connect(`http://127.0.0.1:${grpcPort}`);
  onTestFinished(() => session.destroy());
  const stream = session.request({
    ":method": "POST",
    ":path": "/auth.v1.IntrospectionService/Introspect",
    "content-type": "application/grpc",
    "grpc-encoding": "br",
    te: "trailers",
  });
  let headers: IncomingHttpHeaders | undefined;
  stream.on("response", (received) => {
    headers = received;
  });
  // The server has begun with the call once it has responded to what was sent after it, and once more.
  for (let round = 0; round < 2; round += 1)
    await new Promise<void>((resolve) => session.ping(() => resolve()));
  expect(headers).toBeUndefined();
  stream.end(envelope(Buffer.alloc(0)));
  await once(stream.resume(), "close");
  // Printable ASCII is not percent-encoded: clients may decode no more than has to be.
  expect(headers).toMatchObject({
    "grpc-status": "12",
    "grpc-message": expect.stringMatching(/^[ -$&-~]+$/),
  });
  expect(stream.rstCode).toBe(0);
});
