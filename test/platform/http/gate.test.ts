import { once } from "node:events";
import { createServer } from "node:http";
import { connect } from "node:net";
import { setImmediate } from "node:timers/promises";
import { expect, it, onTestFinished } from "vitest";
import { Admission } from "../../../src/platform/base/admission.ts";
import { admit } from "../../../src/platform/http/gate.ts";
import { listening } from "../../../src/platform/http/server.ts";
import { createMetrics } from "../../../src/platform/observability/metrics.ts";
import { captureLog } from "../../support/captured-log.ts";
import { waitFor } from "../../support/wait-for.ts";

const connections = 300;

it("a request whose client has gone while it waited for its turn is not begun with", async () => {
  const metrics = createMetrics("sample", "1.0.0");
  const admission = new Admission({ logger: captureLog().logger, observer: metrics.admission });
  const sheddable = { service: "sample", priority: "high", refuse: () => undefined } as const;
  let arrived = 0;
  let begun = 0;
  const server = createServer((request, response) => {
    arrived += 1;
    admit(admission, sheddable, request, response, () => {
      begun += 1;
    });
    if (arrived === connections) server.closeAllConnections();
  });
  const port = await listening(server, "127.0.0.1", 0);
  onTestFinished(() => void server.close());
  let accepted = 0;
  server.on("connection", () => {
    accepted += 1;
  });
  const sockets = Array.from({ length: connections }, () => connect(port, "127.0.0.1"));
  await Promise.all(sockets.map((socket) => once(socket, "connect")));
  await waitFor(() => expect(accepted).toBe(connections));
  const closed = sockets.map(
    (socket) => new Promise((resolve) => socket.on("error", resolve).on("close", resolve)),
  );
  for (const socket of sockets) socket.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  await Promise.all(closed);
  expect(arrived).toBe(connections);
  for (let turn = 0; turn < connections; turn += 1) await setImmediate();
  // Some had their turn before the closing of their connections was reported.
  expect(begun).toBeGreaterThan(0);
  expect(begun).toBeLessThan(connections);
});
