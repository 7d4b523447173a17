/**
 * The AsyncAPI documents: the events that a service publishes through a broker. They are made from the protos, which
 * state what an event carries, and from the table of the service's events.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { DescMessage } from "@bufbuild/protobuf";
import { AuthEvents, authEventStream } from "../src/auth/events.ts";
import type { EventStream } from "../src/platform/messaging/broker.ts";
import type { EventKind } from "../src/platform/messaging/outbox.ts";
import { PushEvents, pushEventStream } from "../src/push/events.ts";
import { ROOT } from "./command.ts";

interface PublishedEvents {
  /** The folder in proto/. */
  readonly name: string;
  readonly title: string;
  readonly stream: EventStream;
  readonly kinds: readonly EventKind<DescMessage>[];
}

/** The events of each service. */
export const publishedEvents: readonly PublishedEvents[] = [
  { name: "auth", title: "Auth events", stream: authEventStream, kinds: Object.values(AuthEvents) },
  { name: "push", title: "Push events", stream: pushEventStream, kinds: Object.values(PushEvents) },
];

/** The attributes of CloudEvents 1.0, as headers of a message (its NATS protocol binding). */
const headers = {
  type: "object",
  description:
    'In a value, all that is not visible ASCII, a quotation mark (") and a percent sign (%) are percent-encoded.',
  required: [
    ...["ce-specversion", "ce-id", "ce-source", "ce-type", "ce-subject", "ce-time", "content-type"],
    "Nats-Msg-Id",
  ],
  properties: {
    "ce-specversion": { type: "string", const: "1.0" },
    "ce-id": {
      type: "string",
      format: "uuid",
      description: "The event; it keeps its id where it is delivered again.",
    },
    "ce-source": { type: "string", description: "The service, as a URI reference." },
    "ce-type": {
      type: "string",
      description: "The type of the event, which is also the subject of the message.",
    },
    "ce-subject": {
      type: "string",
      description: "What the event is about. Events of one subject come in order.",
    },
    "ce-time": { type: "string", format: "date-time", description: "When it happened." },
    "ce-traceparent": {
      type: "string",
      description: "Where traces are made: the span in which the event came to be (W3C Trace Context).",
    },
    "ce-tracestate": {
      type: "string",
      description:
        "What else the trace carries, for vendors and samplers (W3C Trace Context). Only beside ce-traceparent.",
    },
    "content-type": { type: "string", const: "application/protobuf" },
    "Nats-Msg-Id": { type: "string", format: "uuid", description: "The same as ce-id, for the broker." },
  },
};

/** The document of a service's events, as an object. */
export function asyncapiDocument({ name, title, stream, kinds }: PublishedEvents) {
  const proto = readFileSync(join(ROOT, `proto/${name}/v1/events.proto`), "utf8");
  const entries = kinds.map((kind) => ({ kind, id: kind.message.name }));
  const each = <T>(make: (entry: (typeof entries)[number]) => T) =>
    Object.fromEntries(entries.map((entry) => [entry.id, make(entry)]));
  return {
    asyncapi: "3.0.0",
    info: {
      title,
      version: "1.0.0",
      description: [
        opening(proto),
        `Events go through NATS JetStream where BROKER_URL is set, in the stream ${stream.name}, as CloudEvents 1.0 in binary mode.`,
      ].join("\n\n"),
      license: { name: "Apache-2.0", url: "https://www.apache.org/licenses/LICENSE-2.0" },
    },
    defaultContentType: "application/protobuf",
    channels: each(({ kind, id }) => ({
      address: kind.type,
      description: `A subject of the stream ${stream.name}.`,
      messages: { [id]: { $ref: `#/components/messages/${id}` } },
    })),
    operations: each(({ id }) => ({
      action: "send",
      channel: { $ref: `#/channels/${id}` },
      messages: [{ $ref: `#/channels/${id}/messages/${id}` }],
    })),
    components: {
      messages: each(({ kind, id }) => {
        const { comment, text } = declaration(proto, "message", id);
        return {
          name: kind.message.typeName,
          title: kind.type,
          description: comment,
          contentType: "application/protobuf",
          headers: { $ref: "#/components/schemas/CloudEventHeaders" },
          payload: {
            schemaFormat: "application/vnd.google.protobuf;version=3",
            schema: [
              'syntax = "proto3";',
              `package ${kind.message.file.proto.package};`,
              text,
              ...enumsIn(proto, text),
            ].join("\n\n"),
          },
        };
      }),
      schemas: { CloudEventHeaders: headers },
    },
  };
}

/** A declaration of the proto, and the comment above it without the marks. */
function declaration(proto: string, keyword: "message" | "enum", name: string) {
  const pattern = new RegExp(`((?:^//.*\\n)*)(^${keyword} ${name} \\{[^{}]*^\\})`, "m");
  const [, comment = "", text] = pattern.exec(proto) ?? [];
  if (text === undefined)
    throw new Error(`events.proto declares no ${keyword} ${name} without another in it`);
  return { comment: uncommented(comment), text };
}

/** The enums of the proto that a declaration names. */
function enumsIn(proto: string, text: string): readonly string[] {
  const names = [...proto.matchAll(/^enum (\w+) /gm)].map(([, name = ""]) => name);
  return names
    .filter((name) => new RegExp(`^  (?:optional |repeated )?${name} `, "m").test(text))
    .map((name) => declaration(proto, "enum", name).text);
}

/** The comment of the proto on all of its events. */
function opening(proto: string): string {
  const [comment = ""] = /^\/\/ Events of[\s\S]*?\n\n/m.exec(proto) ?? [];
  if (comment === "") throw new Error("events.proto has no opening comment");
  return uncommented(comment);
}

function uncommented(comment: string): string {
  return comment
    .replaceAll(/^\/\/ ?/gm, "")
    .replaceAll(/\s+/g, " ")
    .trim();
}
