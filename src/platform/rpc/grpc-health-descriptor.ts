/**
 * The file of grpc.health.v1 for reflection. The one that grpc-health-check could give has relative type
 * names, which strict clients do not resolve.
 */
import { create } from "@bufbuild/protobuf";
import {
  type FileDescriptorProto,
  FileDescriptorProtoSchema,
  FieldDescriptorProto_Label as Label,
  FieldDescriptorProto_Type as Type,
} from "@bufbuild/protobuf/wkt";

export const healthServiceName = "grpc.health.v1.Health";

const inPackage = (name: string) => `.grpc.health.v1.${name}`;
const method = (name: string, input: string, output: string, serverStreaming = false) => ({
  name,
  inputType: inPackage(input),
  outputType: inPackage(output),
  serverStreaming,
});
const field = (name: string, number: number, type: Type, typeName = "", label = Label.OPTIONAL) => ({
  name,
  number,
  type,
  label,
  ...(typeName && { typeName: inPackage(typeName) }),
});

export function healthFile(): FileDescriptorProto {
  return create(FileDescriptorProtoSchema, {
    name: "grpc/health/v1/health.proto",
    package: "grpc.health.v1",
    syntax: "proto3",
    messageType: [
      { name: "HealthCheckRequest", field: [field("service", 1, Type.STRING)] },
      {
        name: "HealthCheckResponse",
        field: [field("status", 1, Type.ENUM, "HealthCheckResponse.ServingStatus")],
        enumType: [
          {
            name: "ServingStatus",
            value: ["UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"].map((name, number) => ({
              name,
              number,
            })),
          },
        ],
      },
      { name: "HealthListRequest" },
      {
        name: "HealthListResponse",
        field: [field("statuses", 1, Type.MESSAGE, "HealthListResponse.StatusesEntry", Label.REPEATED)],
        nestedType: [
          {
            name: "StatusesEntry",
            options: { mapEntry: true },
            field: [field("key", 1, Type.STRING), field("value", 2, Type.MESSAGE, "HealthCheckResponse")],
          },
        ],
      },
    ],
    service: [
      {
        name: "Health",
        method: [
          method("Check", "HealthCheckRequest", "HealthCheckResponse"),
          method("List", "HealthListRequest", "HealthListResponse"),
          method("Watch", "HealthCheckRequest", "HealthCheckResponse", true),
        ],
      },
    ],
  });
}
