/** Java: Spring Boot, in both lines that are current. */
import type { Language } from "../language.ts";
import { openapiGeneratorToolchain } from "../openapi-generator.ts";
import { springCheck } from "./spring.ts";

export const language: Language = {
  name: "java",
  toolchain: openapiGeneratorToolchain,
  checks: [springCheck("3.5.16", true), springCheck("4.0.9", false)],
};
