/** The ceiling for gRPC: bare node:http2, by its core API, that decodes the request and encodes a fixed response. */
import { createServer } from "node:http2";
import { create, fromBinary, fromJsonString, toBinary } from "@bufbuild/protobuf";
import {
  IntrospectRequestSchema,
  IntrospectResponseSchema,
} from "../../gen/proto/auth/v1/introspection_pb.ts";

const response = create(
  IntrospectResponseSchema,
  fromJsonString(IntrospectResponseSchema, process.argv[3] ?? "{}"),
);
const server = createServer();
server.on("stream", (stream) => {
  const parts: Buffer[] = [];
  stream.on("error", () => undefined);
  stream.on("data", (part: Buffer) => parts.push(part));
  stream.on("end", () => {
    const { token } = fromBinary(IntrospectRequestSchema, Buffer.concat(parts).subarray(5));
    const message = toBinary(IntrospectResponseSchema, response);
    const prefixed = Buffer.alloc(5 + message.length);
    prefixed.writeUInt32BE(message.length, 1);
    prefixed.set(message, 5);
    stream.respond({ ":status": 200, "content-type": "application/grpc+proto" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": token === "" ? "16" : "0" }));
    stream.end(prefixed);
  });
});
server.listen(Number(process.argv[2]), "127.0.0.1", () => process.stdout.write("ready\n"));
