/** What counts as in flight on the gRPC port. */
import { connect } from "node:http2";
import { expect, it, onTestFinished } from "vitest";
import { envelope } from "../../support/grpc-client.ts";
import { startSheddableServers } from "../../support/sheddable-servers.ts";
import { waitFor } from "../../support/wait-for.ts";

it("a call counts for as long as its method works, though its caller has gone", async () => {
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
  });
  stream.end(envelope(Buffer.alloc(0)));
  await waitFor(() => expect(introspecting).toBe(1));
  stream.close(8);
  // The server has seen the reset once it has responded to what was sent after it.
  await new Promise<void>((resolve) => session.ping(() => resolve()));
  expect(await inFlight()).toBe(1);
  servers.release();
  await waitFor(async () => expect(await inFlight()).toBe(0));
});
