/** Server reflection, v1 and v1alpha, over the descriptors of protobuf-es. Of a file its dependencies are sent, too. */
import { type DescFile, toBinary } from "@bufbuild/protobuf";
import { nestedTypes } from "@bufbuild/protobuf/reflect";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import {
  type ServerReflectionRequest,
  ServerReflection as V1,
} from "../../../gen/proto/grpc/reflection/v1/reflection_pb.ts";
import {
  type ServerReflectionRequest as AlphaRequest,
  ServerReflection as V1Alpha,
} from "../../../gen/proto/grpc/reflection/v1alpha/reflection_pb.ts";
import { implement, type RpcService } from "./service.ts";

type Request = ServerReflectionRequest | AlphaRequest;
type Descriptors = ReturnType<typeof descriptorsOf>;

/** Reflection for these services. */
export function createReflection(services: readonly RpcService[]): RpcService[] {
  const names = services.map(({ descriptor }) => ({ name: descriptor.typeName }));
  const files = new Map<string, Descriptors>();
  const symbols = new Map<string, Descriptors>();
  for (const file of new Set(services.flatMap(({ descriptor }) => [...withDependencies(descriptor.file)]))) {
    const descriptors = descriptorsOf(file);
    files.set(file.proto.name, descriptors);
    for (const symbol of symbolsOf(file)) symbols.set(symbol, descriptors);
  }

  function resultOf({ messageRequest: { case: question, value } }: Request) {
    switch (question) {
      case "listServices":
        return { case: "listServicesResponse", value: { service: names } } as const;
      case "fileByFilename":
        return files.get(value) ?? notFound;
      case "fileContainingSymbol":
        return symbols.get(value) ?? notFound;
      // Files of proto3 extend options only, which these do not.
      case "allExtensionNumbersOfType":
        if (!symbols.has(value)) return notFound;
        return { case: "allExtensionNumbersResponse", value: { baseTypeName: value } } as const;
      case "fileContainingExtension":
        return notFound;
      default:
        return errorResponse(Code.InvalidArgument, "The request asks for nothing that is known.");
    }
  }

  /** Reads a request once the response to the one before has been taken. */
  async function* serverReflectionInfo<R extends Request>(requests: AsyncIterable<R>) {
    for await (const request of requests)
      yield { validHost: request.host, originalRequest: request, messageResponse: resultOf(request) };
  }

  return [implement(V1, { serverReflectionInfo }), implement(V1Alpha, { serverReflectionInfo })];
}

function descriptorsOf(file: DescFile) {
  const fileDescriptorProto = [...withDependencies(file)].map(({ proto }) =>
    toBinary(FileDescriptorProtoSchema, proto),
  );
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto } } as const;
}

function errorResponse(errorCode: Code, errorMessage: string) {
  return { case: "errorResponse", value: { errorCode, errorMessage } } as const;
}

const notFound = errorResponse(Code.NotFound, "The server has no such file, symbol or extension.");

function withDependencies(file: DescFile, found: Set<DescFile> = new Set()): Set<DescFile> {
  if (found.has(file)) return found;
  found.add(file);
  for (const dependency of file.dependencies) withDependencies(dependency, found);
  return found;
}

/** The full names of what a file defines. */
function symbolsOf(file: DescFile): string[] {
  return [...nestedTypes(file)].flatMap((type) => {
    const members = type.kind === "service" ? type.methods : type.kind === "message" ? type.fields : [];
    return [type.typeName, ...members.map(({ name }) => `${type.typeName}.${name}`)];
  });
}
