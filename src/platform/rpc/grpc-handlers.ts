/** One service on @grpc/grpc-js: its definition and its handlers, made from the descriptors of protobuf-es. */
import { once } from "node:events";
import { fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import type { ConnectError } from "@connectrpc/connect";
import {
  type handleServerStreamingCall,
  type handleUnaryCall,
  Metadata,
  type Server,
  type ServerUnaryCall,
  type ServerWritableStream,
  type StatusObject,
  type UntypedHandleCall,
} from "@grpc/grpc-js";
import type { RpcPipeline } from "./active-calls.ts";
import { type ActiveCall, cancelled, deadlineExceeded, malformedRequest } from "./call.ts";
import type { RpcMethod, RpcService, ServerStreamingMethod, UnaryMethod } from "./service.ts";

type GrpcCall = ServerUnaryCall<Decoded, Buffer> | ServerWritableStream<Decoded, Buffer>;

/** A decoded request; `message` is undefined if the bytes could not be decoded. */
interface Decoded {
  readonly message: Message | undefined;
}

export function addService(server: Server, pipeline: RpcPipeline, service: RpcService): void {
  const definition: Parameters<Server["addService"]>[0] = Object.fromEntries(
    service.methods.map(({ descriptor, kind }) => [
      descriptor.localName,
      {
        path: `/${service.descriptor.typeName}/${descriptor.name}`,
        requestStream: false,
        responseStream: kind === "server_streaming",
        // Never throws: the pipeline handles a message that cannot be decoded like any other error.
        requestDeserialize: (bytes: Buffer): Decoded => {
          try {
            return { message: fromBinary(descriptor.input, bytes) };
          } catch {
            return { message: undefined };
          }
        },
        // A server does not use the next two. The pipeline encodes responses, so that a response that cannot be
        // encoded is logged as a defect.
        requestSerialize: (bytes: Buffer) => bytes,
        responseDeserialize: (bytes: Buffer) => bytes,
        responseSerialize: (bytes: Buffer) => bytes,
      },
    ]),
  );
  const handlers = service.methods.map((method) => [method.descriptor.localName, handler(pipeline, method)]);
  server.addService(definition, Object.fromEntries(handlers));
  pipeline.serves(service, "grpc");
}

function handler(pipeline: RpcPipeline, method: RpcMethod): UntypedHandleCall {
  if (method.kind === "unary") return unaryHandler(pipeline, method);
  if (method.kind === "server_streaming") return streamHandler(pipeline, method);
  throw new TypeError(`${method.descriptor.toString()} is served by the handler of every protocol only`);
}

function unaryHandler(pipeline: RpcPipeline, method: UnaryMethod): handleUnaryCall<Decoded, Buffer> {
  const encode = encoder(method);
  return (grpcCall, callback) => {
    const call = begin(pipeline, method, grpcCall);
    const respond = (error: Partial<StatusObject> | null, bytes?: Buffer) => {
      grpcCall.sendMetadata(initialMetadata(call));
      callback(error, bytes);
    };
    const { message } = grpcCall.request;
    if (!message) respond(refuse(call));
    else {
      call
        .unary(method, message, encode)
        .then(
          (bytes) => respond(null, bytes),
          (failure: ConnectError) => respond(statusOf(failure)),
        )
        .catch((thrown: unknown) => call.context.log.error({ err: thrown }, "A response could not be sent"));
    }
  };
}

function streamHandler(
  pipeline: RpcPipeline,
  method: ServerStreamingMethod,
): handleServerStreamingCall<Decoded, Buffer> {
  const encode = encoder(method);
  return (grpcCall) => {
    const call = begin(pipeline, method, grpcCall);
    grpcCall.sendMetadata(initialMetadata(call));
    const { message } = grpcCall.request;
    if (message) void pump(grpcCall, call, call.stream(method, message, encode));
    else grpcCall.emit("error", refuse(call));
  };
}

async function pump(
  grpcCall: ServerWritableStream<Decoded, Buffer>,
  call: ActiveCall,
  messages: AsyncIterable<Buffer>,
): Promise<void> {
  try {
    for await (const bytes of messages) {
      if (!grpcCall.write(bytes)) await call.orStopped(() => once(grpcCall, "drain"));
    }
    grpcCall.end();
  } catch (thrown) {
    grpcCall.emit("error", statusOf(call.fail(thrown)));
  }
}

/**
 * Milliseconds before its deadline within which a call that is cancelled counts as one whose deadline has passed: the
 * caller counts from sending it, and the deadline is counted here from the start of its handling, which is later.
 */
const deadlineLeadMs = 50;

function begin(pipeline: RpcPipeline, method: RpcMethod, grpcCall: GrpcCall): ActiveCall {
  const call = pipeline.begin({
    method: method.descriptor,
    protocol: "grpc",
    hasDeadline: grpcCall.getDeadline() !== Number.POSITIVE_INFINITY,
    metadata: (name) => {
      const [first] = grpcCall.metadata.get(name);
      return typeof first === "string" ? first : undefined;
    },
  });
  // The event also follows a deadline, which the library enforces and reports, and every call that has ended.
  grpcCall.on("cancelled", () => {
    const left = Number(grpcCall.getDeadline()) - Date.now();
    call.stop(() => (left <= deadlineLeadMs ? deadlineExceeded() : cancelled()));
  });
  return call;
}

function encoder(method: RpcMethod): (message: Message) => Buffer {
  return (message) => {
    const bytes = toBinary(method.descriptor.output, message);
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  };
}

function refuse(call: ActiveCall): Partial<StatusObject> {
  const reason = malformedRequest();
  call.stop(() => reason);
  return statusOf(reason);
}

function initialMetadata(call: ActiveCall): Metadata {
  const metadata = new Metadata();
  metadata.set("x-request-id", call.context.requestId);
  return metadata;
}

function statusOf(failure: ConnectError): Partial<StatusObject> {
  const metadata = new Metadata();
  for (const [name, value] of failure.metadata) metadata.set(name, value);
  // The codes of Connect are those of gRPC.
  return { code: Number(failure.code), details: failure.rawMessage, metadata };
}
