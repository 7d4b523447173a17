/** One service on @grpc/grpc-js: its definition and its handlers, made from the descriptors of protobuf-es. */
import { once } from "node:events";
import { create, fromBinary, type Message, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
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
import { type ActiveCall, type CallOrigin, cancelled, deadlineExceeded } from "./call.ts";
import type { RpcMethod, RpcService, ServerStreamingMethod, UnaryMethod } from "./service.ts";
import type { ActiveStream } from "./stream-call.ts";

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
  return (grpcCall, callback) => {
    const call = pipeline.beginUnary(method, {
      ...originOf(grpcCall),
      headers: {},
      // The library enforces the caller's own.
      timeoutMs: grpcCall.getDeadline() === Number.POSITIVE_INFINITY ? undefined : Number.POSITIVE_INFINITY,
      stopped: (reason) => respond(statusOf(reason)),
    });
    const respond = (error: Partial<StatusObject> | null, bytes?: Buffer) => {
      grpcCall.sendMetadata(initialMetadata(call));
      callback(error, bytes);
    };
    stopWith(grpcCall, call);
    const { message } = grpcCall.request;
    if (!message) {
      call.stop(malformedRequest);
      return;
    }
    const run = async () => {
      try {
        const bytes = encode(method, create(method.descriptor.output, await call.run(message)));
        if (call.failure) return;
        call.succeed();
        respond(null, bytes);
      } catch (thrown) {
        if (!call.failure) respond(statusOf(call.fail(thrown)));
      }
    };
    void run();
  };
}

function streamHandler(
  pipeline: RpcPipeline,
  method: ServerStreamingMethod,
): handleServerStreamingCall<Decoded, Buffer> {
  return (grpcCall) => {
    const call = pipeline.beginStream(method, originOf(grpcCall));
    stopWith(grpcCall, call);
    grpcCall.sendMetadata(initialMetadata(call));
    const { message } = grpcCall.request;
    if (message)
      void pump(
        grpcCall,
        call,
        method,
        call.responses(() => method.run(message, call)),
      );
    else {
      call.stop(malformedRequest);
      grpcCall.emit("error", statusOf(malformedRequest()));
    }
  };
}

async function pump(
  grpcCall: ServerWritableStream<Decoded, Buffer>,
  call: ActiveStream,
  method: ServerStreamingMethod,
  messages: AsyncIterable<Message>,
): Promise<void> {
  try {
    for await (const message of messages) {
      if (!grpcCall.write(encode(method, message))) await call.orStopped(() => once(grpcCall, "drain"));
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

function originOf(grpcCall: GrpcCall): CallOrigin {
  return {
    protocol: "grpc",
    metadata: (name) => {
      const [first] = grpcCall.metadata.get(name);
      return typeof first === "string" ? first : undefined;
    },
  };
}

function stopWith(grpcCall: GrpcCall, call: ActiveCall): void {
  // The event also follows a deadline, which the library enforces and reports, and every call that has ended.
  grpcCall.on("cancelled", () => {
    const left = Number(grpcCall.getDeadline()) - Date.now();
    call.stop(() => (left <= deadlineLeadMs ? deadlineExceeded() : cancelled()));
  });
}

function encode(method: RpcMethod, message: Message): Buffer {
  const bytes = toBinary(method.descriptor.output, message);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** The status is INTERNAL, as in every gRPC implementation. */
function malformedRequest(): ConnectError {
  return new ConnectError("The request message cannot be decoded.", Code.Internal);
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
