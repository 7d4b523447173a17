/**
 * The two services that every native gRPC server has beside its own: grpc.health.v1, and server reflection
 * (v1 and v1alpha) over the descriptors of protobuf-es.
 */
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
import { HealthImplementation } from "grpc-health-check";
import { healthFile, healthServiceName } from "./grpc-health-descriptor.ts";
import type { RpcService } from "./service.ts";

interface Companions {
  /** The server as a whole serves while all of its services do. @param of all unless given */
  setServing(serving: boolean, of?: readonly RpcService[]): void;
  /** Ends their streams (health watches): they never end by themselves, and would hold up a shutdown. */
  end(): void;
}

export function addHealthAndReflection(server: Server, services: readonly RpcService[]): Companions {
  const streams = new Set<Writable>();
  const tracked = {
    addService: (definition: ServiceDefinition, implementation: UntypedServiceImplementation) =>
      server.addService(definition, trackStreams(implementation, streams)),
  };

  const names = services.map((service) => service.descriptor.typeName);
  const health = new HealthImplementation();
  const unserving = new Set(names);
  const setServing = (serving: boolean, of: readonly RpcService[] = services) => {
    for (const { descriptor } of of) {
      if (serving) unserving.delete(descriptor.typeName);
      else unserving.add(descriptor.typeName);
      health.setStatus(descriptor.typeName, serving ? "SERVING" : "NOT_SERVING");
    }
    health.setStatus("", unserving.size === 0 ? "SERVING" : "NOT_SERVING");
  };
  setServing(false);
  health.addToServer(tracked);

  // Reflection takes the descriptors from the definition of any type in the package, and nothing else of it.
  const definition = {
    format: "Protocol Buffer 3 EnumDescriptorProto",
    type: {},
    fileDescriptorProtos: descriptors(services),
  } as const;
  new ReflectionService({ definition }, { services: [...names, healthServiceName] }).addToServer(tracked);

  return {
    setServing,
    end() {
      for (const stream of streams) {
        stream.emit("error", { code: status.UNAVAILABLE, details: "The server is shutting down." });
      }
    },
  };
}

/** The same implementation, with every stream that it has open kept in `streams`. */
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

/** Each file with those that it imports, and the one of the health service. */
function descriptors(services: readonly RpcService[]): Buffer[] {
  const found = new Map<string, FileDescriptorProto>();
  const add = (file: DescFile) => {
    if (found.has(file.proto.name)) return;
    found.set(file.proto.name, file.proto);
    for (const imported of file.dependencies) add(imported);
  };
  for (const { descriptor } of services) add(descriptor.file);
  return [...found.values(), healthFile()].map((file) =>
    Buffer.from(toBinary(FileDescriptorProtoSchema, file)),
  );
}
