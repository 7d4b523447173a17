/** Java: a generated client, gRPC, readers of the documents, and Spring Boot in both lines that are current. */
import type { Language } from "../language.ts";
import { openapiGeneratorToolchain } from "../openapi-generator.ts";
import { documentsCheck } from "./documents.ts";
import { grpcCheck } from "./grpc.ts";
import { nativeCheck } from "./native.ts";
import { springCheck } from "./spring.ts";

export const language: Language = {
  name: "java",
  toolchain: openapiGeneratorToolchain,
  checks: [nativeCheck, grpcCheck, documentsCheck, springCheck("3.5.16", false), springCheck("4.0.9", false)],
};
