/** The ceiling for gRPC: a bare @grpc/grpc-js server that decodes the request and encodes a fixed answer. */
import { create, fromBinary, fromJsonString, toBinary } from "@bufbuild/protobuf";
import { Server, ServerCredentials } from "@grpc/grpc-js";
import {
  type IntrospectRequest,
  IntrospectRequestSchema,
  type IntrospectResponse,
  IntrospectResponseSchema,
} from "../../gen/proto/auth/v1/introspection_pb.ts";

const answer = create(
  IntrospectResponseSchema,
  fromJsonString(IntrospectResponseSchema, process.argv[3] ?? "{}"),
);
const server = new Server();
server.addService(
  {
    introspect: {
      path: "/auth.v1.IntrospectionService/Introspect",
      requestStream: false,
      responseStream: false,
      requestSerialize: (message: IntrospectRequest) =>
        Buffer.from(toBinary(IntrospectRequestSchema, message)),
      requestDeserialize: (bytes: Buffer) => fromBinary(IntrospectRequestSchema, bytes),
      responseSerialize: (message: IntrospectResponse) =>
        Buffer.from(toBinary(IntrospectResponseSchema, message)),
      responseDeserialize: (bytes: Buffer) => fromBinary(IntrospectResponseSchema, bytes),
    },
  },
  {
    introspect: (_call: unknown, callback: (error: null, response: IntrospectResponse) => void) =>
      callback(null, answer),
  },
);
server.bindAsync(`127.0.0.1:${process.argv[2]}`, ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
  process.stdout.write("ready\n");
});
