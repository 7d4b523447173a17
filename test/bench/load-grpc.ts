/**
 * Load over native gRPC: raw HTTP/2 streams with messages made before the clock runs; every answer is
 * checked. Prints one JSON line.
 *
 *   node load-grpc.ts <port> <authorization> <tokens file> <in flight> <seconds>
 */
import { readFileSync } from "node:fs";
import { connect } from "node:http2";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  IntrospectRequestSchema,
  IntrospectResponseSchema,
} from "../../gen/proto/auth/v1/introspection_pb.ts";
import { MeasuringWindow } from "./measuring-window.ts";

const [port, authorization = "", tokensFile = "", inFlight = "64", seconds = "5"] = process.argv.slice(2);
const messages = readFileSync(tokensFile, "utf8")
  .trimEnd()
  .split("\n")
  .map((token) => {
    const message = toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token }));
    const frame = Buffer.alloc(5 + message.length);
    frame.writeUInt32BE(message.length, 1);
    frame.set(message, 5);
    return frame;
  });
const sessions = Array.from({ length: 4 }, () => connect(`http://127.0.0.1:${port}`));
const headers = {
  ":method": "POST",
  ":path": "/auth.v1.IntrospectionService/Introspect",
  "content-type": "application/grpc+proto",
  te: "trailers",
  authorization,
};
const window = new MeasuringWindow();
let failure: string | undefined;
let checked = 0;
let next = 0;

function call(lane: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const session = sessions[lane % sessions.length];
  const message = messages[next++ % messages.length];
  if (!session || !message) return Promise.resolve();
  const sentAt = performance.now();
  const stream = session.request(headers);
  const chunks: Buffer[] = [];
  let status: unknown;
  stream.on("trailers", (trailers) => {
    status = trailers["grpc-status"];
  });
  stream.on("data", (chunk: Buffer) => chunks.push(chunk));
  stream.on("close", () => {
    window.answered(sentAt);
    // Decoding costs the generator more than sending: every hundredth answer is looked into.
    if (status !== "0") failure = `grpc-status ${String(status)}`;
    else if (checked++ % 100 === 0) {
      const { active } = fromBinary(IntrospectResponseSchema, Buffer.concat(chunks).subarray(5));
      if (!active) failure = "an active token was answered inactive";
    }
    resolve();
  });
  stream.end(message);
  return promise;
}

async function lane(number: number): Promise<void> {
  while (!window.isOver) await call(number);
}

const running = Array.from({ length: Number(inFlight) }, (_, number) => lane(number));
const measured = await window.measure(Number(seconds));
await Promise.all(running);
for (const session of sessions) session.close();
process.stdout.write(`${JSON.stringify({ ...measured, failure })}\n`);
