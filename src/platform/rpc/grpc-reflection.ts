/** Server reflection (v1 and v1alpha) over the descriptors of protobuf-es. */
import type { EventEmitter } from "node:events";
import { Duplex } from "node:stream";
import { type DescFile, toBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import {
  type Server,
  type ServiceDefinition,
  status,
  type UntypedHandleCall,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { ReflectionService } from "@grpc/reflection";
import type { RpcService } from "./service.ts";

/**
 * Adds server reflection for these services.
 * @returns a function that ends the open streams: they never end by themselves, and would delay a shutdown
 */
export function addReflection(server: Server, services: readonly RpcService[]): () => void {
  const streams = new Set<Duplex>();
  // Reflection reads only the descriptors, from the definition of any type in the package.
  const definition = {
    format: "Protocol Buffer 3 EnumDescriptorProto",
    type: {},
    fileDescriptorProtos: descriptors(services),
  } as const;
  const names = services.map(({ descriptor }) => descriptor.typeName);
  new ReflectionService({ definition }, { services: names }).addToServer({
    addService: (added: ServiceDefinition, implementation: UntypedServiceImplementation) =>
      server.addService(added, trackStreams(implementation, streams)),
  });
  return () => {
    for (const stream of streams) {
      stream.emit("error", { code: status.UNAVAILABLE, details: "The server is shutting down." });
    }
  };
}

/** Wraps an implementation so that `streams` contains its open streams, and none is asked faster than it is read. */
function trackStreams(
  implementation: UntypedServiceImplementation,
  streams: Set<Duplex>,
): UntypedServiceImplementation {
  const handlers = Object.entries(implementation).map(([name, run]): [string, UntypedHandleCall] => [
    name,
    (call: EventEmitter, callback?: unknown) => {
      Reflect.apply(run, implementation, [call, callback]);
      if (!(call instanceof Duplex)) return;
      streams.add(call);
      call.once("close", () => streams.delete(call));
      awaitReader(call);
    },
  ]);
  return Object.fromEntries(handlers);
}

/**
 * Takes no request while responses wait for the client to read them. The library responds to each request at once, and
 * would keep the responses of a client that asks without end and reads none.
 */
function awaitReader(call: Duplex): void {
  // After the library's own listener, which has written the response by then.
  call.on("data", () => {
    if (call.writableNeedDrain) call.pause();
  });
  call.on("drain", () => call.resume());
}

/** The files of the services and all files that they import. */
function descriptors(services: readonly RpcService[]): Buffer[] {
  const found = new Map<string, FileDescriptorProto>();
  const add = (file: DescFile) => {
    if (found.has(file.proto.name)) return;
    found.set(file.proto.name, file.proto);
    for (const imported of file.dependencies) add(imported);
  };
  for (const { descriptor } of services) add(descriptor.file);
  return [...found.values()].map((file) => Buffer.from(toBinary(FileDescriptorProtoSchema, file)));
}
