/** Early refusals are responses, and no resets: they end no connection. */
import { once } from "node:events";
import { connect } from "node:http2";
import { expect, it, onTestFinished } from "vitest";
import { envelope } from "../../support/grpc-client.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { startSheddableServers } from "../../support/sheddable-servers.ts";

/** In all, more than the streams that a client may have reset on either port. */
const rounds = 6;
const callsOfRound = 200;

it.each([
  ["GRPC_PORT", "application/grpc+proto", { ":status": 200, "grpc-status": "14" }],
  ["SERVER_PORT", "application/json", { ":status": 503 }],
])(
  "calls that %s refuses, before their messages are there, cost nobody the connection",
  async (port, type, refusal) => {
    const { grpcPort, httpPort } = await startSheddableServers({
      tls: localhostCertificate,
      isOverloaded: true,
    });
    const origin = port === "GRPC_PORT" ? `http://127.0.0.1:${grpcPort}` : `https://127.0.0.1:${httpPort}`;
    const session = connect(origin, { rejectUnauthorized: false });
    onTestFinished(() => session.destroy());
    const goaways: number[] = [];
    session.on("goaway", (code) => goaways.push(code));
    await once(session, "remoteSettings");
    const path = "/auth.v1.IntrospectionService/Introspect";
    const headers = { ":method": "POST", ":path": path, "content-type": type, te: "trailers" };
    const pinged = () => new Promise<void>((resolve) => session.ping(() => resolve()));
    for (let round = 0; round < rounds; round += 1) {
      const streams = Array.from({ length: callsOfRound }, () => session.request(headers));
      const responses = streams.map((stream) => once(stream, "response"));
      const closed = streams.map((stream) => once(stream.resume(), "close"));
      // The server has refused them once it responds to what was sent after them.
      await pinged();
      await pinged();
      for (const stream of streams) stream.end(envelope(Buffer.alloc(0)));
      for (const [response] of await Promise.all(responses)) expect(response).toMatchObject(refusal);
      await Promise.all(closed);
      expect(streams.every(({ rstCode }) => rstCode === 0)).toBe(true);
    }
    expect(goaways).toEqual([]);
    expect(session.closed).toBe(false);
  },
);
