/** The AsyncAPI documents: valid, and the same as the protos and the tables of events. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import asyncapiSchema from "@asyncapi/specs/schemas/3.0.0-without-$id.json" with { type: "json" };
import { createFileRegistry, type DescMessage, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { loadSync } from "@grpc/proto-loader";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";
import { describe, expect, test } from "vitest";
import { asyncapiDocument, publishedEvents } from "../../scripts/asyncapi.ts";
import { AuthEvents } from "../../src/auth/events.ts";
import { encodeEvent } from "../../src/platform/messaging/cloud-event.ts";
import { root } from "../support/program.ts";

const ajv = new Ajv({ strict: false });
addFormats.default(ajv);
const isValid = ajv.compile(asyncapiSchema);

/** The descriptors in the text of a proto, read by another compiler than ours. */
function registryOf(proto: string) {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  try {
    const file = join(directory, "event.proto");
    writeFileSync(file, proto);
    const definitions = Object.values(loadSync(file, { keepCase: true }));
    const [first] = definitions.flatMap((found) =>
      "fileDescriptorProtos" in found ? [found.fileDescriptorProtos as Buffer[]] : [],
    );
    const descriptors = (first ?? []).map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes));
    for (const descriptor of descriptors) {
      // What this compiler leaves out.
      descriptor.syntax = "proto3";
      const named = descriptor.messageType
        .flatMap(({ field }) => field)
        .filter(({ typeName }) => typeName !== "");
      for (const field of named) field.typeName = `.${descriptor.package}.${field.typeName}`;
    }
    return createFileRegistry({ $typeName: FileDescriptorSetSchema.typeName, file: descriptors });
  } finally {
    rmSync(directory, { recursive: true });
  }
}

/** The first field in the text of a proto. */
const aField = /^ {2}(?<type>\S+) (?<name>\w+) = (?<number>\d+);\n/m;

/** What a message and its proto have to agree on: its fields, and the values of their enums. */
function fieldsOf(message: DescMessage | undefined) {
  return message?.fields.map((field) => ({
    name: field.name,
    number: field.number,
    kind: field.fieldKind,
    scalar: field.scalar,
    enum: field.enum && {
      name: field.enum.typeName,
      values: field.enum.values.map(({ name, number }) => [name, number]),
    },
  }));
}

/** The fields of a message as its payload in the document describes them. */
function payloadOf({ components }: ReturnType<typeof asyncapiDocument>, { name, typeName }: DescMessage) {
  return fieldsOf(registryOf(components.messages[name]?.payload.schema ?? "").getMessage(typeName));
}

describe.each(publishedEvents)("the events of $name", (events) => {
  const text = readFileSync(join(root, `gen/asyncapi/${events.name}.json`), "utf8");
  const document: ReturnType<typeof asyncapiDocument> = JSON.parse(text);

  test("the document is valid AsyncAPI 3.0, and the newest", () => {
    expect(isValid(document), JSON.stringify(isValid.errors)).toBe(true);
    expect(document).toEqual(asyncapiDocument(events));
  });

  test.each<[string, (broken: typeof document) => void]>([
    [
      "an operation that neither sends nor receives",
      (broken) => setFirst(broken.operations, "action", "emit"),
    ],
    ["an address that is no text", (broken) => setFirst(broken.channels, "address", 1)],
    [
      "a message without a payload's schema",
      (broken) => setFirst(broken.components.messages, "payload", "text"),
    ],
    ["no version", (broken) => Reflect.deleteProperty(broken.info, "version")],
  ])("%s is found", (_name, break_) => {
    const broken = structuredClone(document);
    break_(broken);
    expect(isValid(broken)).toBe(false);
  });

  test.each(events.kinds)("$type is in the document, with the fields of its message", ({ type, message }) => {
    expect(document.channels[message.name]?.address).toBe(type);
    const described = document.components.messages[message.name];
    expect(described?.description).toContain(type);
    expect(described && payloadOf(document, message)).toEqual(fieldsOf(message));
  });

  test.each<[string, (schema: string) => string]>([
    ["lacks a field", (schema) => schema.replace(aField, "")],
    ["has another field", (schema) => schema.replace(aField, "$&  string added = 99;\n")],
    ["numbers a field differently", (schema) => schema.replace(aField, "  $<type> $<name> = 99;\n")],
    ["names a field differently", (schema) => schema.replace(aField, "  $<type> renamed = $<number>;\n")],
    ["gives a field another type", (schema) => schema.replace(aField, "  bytes $<name> = $<number>;\n")],
    ["calls a value of an enum otherwise", (schema) => schema.replace(/_UNSPECIFIED = 0/, "_UNKNOWN = 0")],
  ])("a payload that %s is found", (_name, break_) => {
    const broken = structuredClone(document);
    const found = events.kinds.filter(({ message }) => {
      const { payload } = broken.components.messages[message.name] ?? {};
      if (!payload) return false;
      const before = payload.schema;
      payload.schema = break_(before);
      return payload.schema !== before;
    });
    expect(found.length).toBeGreaterThan(0);
    for (const { message } of found)
      expect(payloadOf(broken, message), message.name).not.toEqual(fieldsOf(message));
  });
});

test("the documents name each visible character that is percent-encoded", () => {
  const { type, message } = AuthEvents.identityDeleted;
  const visible = Array.from({ length: 0x7e - 0x20 }, (_, index) => String.fromCharCode(0x21 + index));
  const encoded = visible.filter((subject) => {
    const event = {
      specversion: "1.0",
      id: "f81d4fae-7dec-4d0b-a765-00a0c91e6bf6",
      source: "/auth",
      type,
      subject,
      time: "2026-01-01T00:00:00Z",
      datacontenttype: "application/json",
      data: {},
    } as const;
    return encodeEvent(event, message).headers.get("ce-subject") !== subject;
  });
  expect(encoded).toEqual(['"', "%"]);
  for (const events of publishedEvents) {
    const { description } = asyncapiDocument(events).components.schemas.CloudEventHeaders;
    for (const character of encoded) expect(description).toContain(`(${character})`);
  }
});

function setFirst(of: object, name: string, value: unknown): void {
  const [first] = Object.values(of);
  Reflect.set(first, name, value);
}
