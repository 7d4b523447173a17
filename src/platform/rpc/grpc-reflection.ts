/** Server reflection (v1 and v1alpha) over the descriptors of protobuf-es. */
import type { EventEmitter } from "node:events";
import { Writable } from "node:stream";
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
  const streams = new Set<Writable>();
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

/** Wraps an implementation so that `streams` contains its open streams. */
function trackStreams(
  implementation: UntypedServiceImplementation,
  streams: Set<Writable>,
): UntypedServiceImplementation {
  const handlers = Object.entries(implementation).map(([name, run]): [string, UntypedHandleCall] => [
    name,
    (call: EventEmitter, callback?: unknown) => {
      if (call instanceof Writable) {
        streams.add(call);
        call.once("close", () => streams.delete(call));
      }
      Reflect.apply(run, implementation, [call, callback]);
    },
  ]);
  return Object.fromEntries(handlers);
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
