/** One service on @grpc/grpc-js: from the descriptors of protobuf-es to its definitions and handlers. */
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

type Surface = ServerUnaryCall<Decoded, Buffer> | ServerWritableStream<Decoded, Buffer>;

/** A request as it comes from the decoder; `undefined` inside where the bytes are no such message. */
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
        // Never throws: a message that cannot be decoded is answered by the pipeline as any other error.
        requestDeserialize: (bytes: Buffer): Decoded => {
          try {
            return { message: fromBinary(descriptor.input, bytes) };
          } catch {
            return { message: undefined };
          }
        },
        // A server does not use these two; answers are encoded in the pipeline, so that what cannot be
        // encoded is logged as a defect.
        requestSerialize: (bytes: Buffer) => bytes,
        responseDeserialize: (bytes: Buffer) => bytes,
        responseSerialize: (bytes: Buffer) => bytes,
      },
    ]),
  );
  const handlers = service.methods.map((method) => [method.descriptor.localName, handler(pipeline, method)]);
  server.addService(definition, Object.fromEntries(handlers));
}

function handler(pipeline: RpcPipeline, method: RpcMethod): UntypedHandleCall {
  return method.kind === "unary" ? unaryHandler(pipeline, method) : streamHandler(pipeline, method);
}

function unaryHandler(pipeline: RpcPipeline, method: UnaryMethod): handleUnaryCall<Decoded, Buffer> {
  const encode = encoder(method);
  return (surface, callback) => {
    const call = begin(pipeline, method, surface);
    const answer = (error: Partial<StatusObject> | null, bytes?: Buffer) => {
      surface.sendMetadata(initialMetadata(call));
      callback(error, bytes);
    };
    const { message } = surface.request;
    if (!message) answer(refuse(call));
    else {
      call
        .unary(method, message, encode)
        .then(
          (bytes) => answer(null, bytes),
          (failure: ConnectError) => answer(statusOf(failure)),
        )
        .catch((thrown: unknown) => call.context.log.error({ err: thrown }, "An answer could not be sent"));
    }
  };
}

function streamHandler(
  pipeline: RpcPipeline,
  method: ServerStreamingMethod,
): handleServerStreamingCall<Decoded, Buffer> {
  const encode = encoder(method);
  return (surface) => {
    const call = begin(pipeline, method, surface);
    surface.sendMetadata(initialMetadata(call));
    const { message } = surface.request;
    if (message) void pump(surface, call, call.stream(method, message, encode));
    else surface.emit("error", refuse(call));
  };
}

async function pump(
  surface: ServerWritableStream<Decoded, Buffer>,
  call: ActiveCall,
  answers: AsyncIterable<Buffer>,
): Promise<void> {
  try {
    for await (const bytes of answers) {
      if (!surface.write(bytes)) await call.orStopped(() => once(surface, "drain"));
    }
    surface.end();
  } catch (thrown) {
    surface.emit("error", statusOf(call.fail(thrown)));
  }
}

/**
 * A deadline runs from when the call was made, and is counted here from when it arrived: a caller that gives up at
 * its end cancels so much earlier, in milliseconds, as the request was on its way.
 */
const deadlineLeadMs = 50;

function begin(pipeline: RpcPipeline, method: RpcMethod, surface: Surface): ActiveCall {
  const call = pipeline.begin({
    method: method.descriptor,
    protocol: "grpc",
    hasDeadline: surface.getDeadline() !== Number.POSITIVE_INFINITY,
    metadata: (name) => {
      const [first] = surface.metadata.get(name);
      return typeof first === "string" ? first : undefined;
    },
  });
  // Comes for a deadline too, which the library keeps and answers; and after every call that has ended.
  surface.on("cancelled", () => {
    const left = Number(surface.getDeadline()) - Date.now();
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
