/** The protos of the conformance suite, from their descriptors. */
import { readFileSync } from "node:fs";
import {
  createFileRegistry,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type FileRegistry,
  fromBinary,
} from "@bufbuild/protobuf";
import {
  AnySchema,
  type DescriptorProto,
  FileDescriptorSetSchema,
  file_google_protobuf_struct,
  StructSchema,
} from "@bufbuild/protobuf/wkt";

const conformance = "connectrpc.conformance.v1";

export interface Types {
  readonly binary: FileRegistry;
  /**
   * Our codec of JSON knows the type of no Any, as our messages have none. Here each is a Struct, whose form in JSON is
   * the same, so that what is in it passes through.
   */
  readonly json: FileRegistry;
}

/** @param file a FileDescriptorSet, as buf builds it */
export function loadTypes(file: string): Types {
  const set = fromBinary(FileDescriptorSetSchema, readFileSync(file));
  const binary = createFileRegistry(set);
  function replaceAny({ field, nestedType }: DescriptorProto): void {
    for (const one of field)
      if (one.typeName === `.${AnySchema.typeName}`) one.typeName = `.${StructSchema.typeName}`;
    nestedType.forEach(replaceAny);
  }
  for (const one of set.file.filter(({ package: name }) => name === conformance)) {
    one.messageType.forEach(replaceAny);
    const { name } = file_google_protobuf_struct.proto;
    if (!one.dependency.includes(name)) one.dependency.push(name);
  }
  // The order is that of dependencies.
  set.file.sort((a, b) => Number(b.package !== conformance) - Number(a.package !== conformance));
  return { binary, json: createFileRegistry(set) };
}

export function messageOf(types: FileRegistry, name: string): DescMessage {
  const found = types.getMessage(`${conformance}.${name}`);
  if (!found) throw new Error(`The suite has no message ${name}`);
  return found;
}

const isUnary = (method: DescMethod): method is DescMethodUnary => method.methodKind === "unary";
const isServerStreaming = (method: DescMethod): method is DescMethodServerStreaming =>
  method.methodKind === "server_streaming";

export function methodsOf(types: FileRegistry) {
  const descriptor = types.getService(`${conformance}.ConformanceService`);
  if (!descriptor) throw new Error("The suite has no service");
  const { methods } = descriptor;
  return { descriptor, unary: methods.filter(isUnary), streaming: methods.filter(isServerStreaming) };
}
