/**
 * CloudEvents 1.0, as they are delivered inside the process and as they go over NATS: in binary mode, attributes in
 * headers, and the data in the binary format of Protobuf (CloudEvents, NATS protocol binding).
 */
import { type DescMessage, fromBinary, fromJsonString, toBinary, toJsonString } from "@bufbuild/protobuf";
import { readTraceparent } from "../base/tracing.ts";

/** A CloudEvent 1.0 whose data is a message of proto/, in its JSON form. */
export interface CloudEvent {
  readonly specversion: "1.0";
  /** A UUID. */
  readonly id: string;
  readonly source: string;
  readonly type: string;
  readonly subject: string;
  /** RFC 3339. */
  readonly time: string;
  readonly datacontenttype: "application/json";
  readonly data: Readonly<Record<string, unknown>>;
  /** Names the span in which it came to be, where that was traced (CloudEvents' extension for distributed tracing). */
  readonly traceparent?: string;
}

/** An event as it goes over the broker. */
export interface EncodedEvent {
  readonly headers: ReadonlyMap<string, string>;
  readonly payload: Uint8Array;
}

const specversion = "1.0";
const contentType = "application/protobuf";

/** The headers of the attributes, which are the same in every event apart from their values. */
const attributes = ["id", "source", "type", "subject", "time"] as const;
const header = (attribute: string) => `ce-${attribute}`;

/** As the binding writes a value: what is not visible ASCII, a quotation mark and a percent sign are percent-encoded. */
const escaped = (text: string) => text.replace(/[^!#$&-~]/gu, encodeURIComponent);

/** A field that a newer version has added is left out. @throws if the data is not a message of the schema */
export function encodeEvent(event: CloudEvent, schema: DescMessage): EncodedEvent {
  return {
    headers: new Map([
      [header("specversion"), specversion],
      ...attributes.map((name) => [header(name), escaped(event[name])] as const),
      ...(event.traceparent === undefined ? [] : [[header("traceparent"), event.traceparent] as const]),
      ["content-type", contentType],
    ]),
    payload: toBinary(
      schema,
      fromJsonString(schema, JSON.stringify(event.data), { ignoreUnknownFields: true }),
    ),
  };
}

/**
 * @param get the value of a header; undefined or empty if there is none
 * @throws if it is no event of this schema, with a message that quotes nothing of it
 */
export function decodeEvent(
  get: (header: string) => string | undefined,
  payload: Uint8Array,
  schema: DescMessage,
): CloudEvent {
  const value = (attribute: string): string => {
    const text = get(header(attribute));
    if (!text) throw new Error(`the header ${header(attribute)} is missing`);
    return decodeURIComponent(text);
  };
  if (value("specversion") !== specversion) throw new Error("it is no CloudEvent 1.0");
  if (get("content-type") !== contentType) throw new Error(`its content type is not ${contentType}`);
  const id = value("id");
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(id)) throw new Error("its id is no UUID");
  if (/\p{Cc}/u.test(value("subject"))) throw new Error("its subject has control characters");
  if (Number.isNaN(Date.parse(value("time")))) throw new Error("its time is none");
  const traceparent = get(header("traceparent")) ?? "";
  return {
    specversion,
    // One that is not valid says nothing, and is no reason to leave the event out.
    ...(readTraceparent(traceparent) && { traceparent }),
    id,
    source: value("source"),
    type: value("type"),
    subject: value("subject"),
    time: value("time"),
    datacontenttype: "application/json",
    data: JSON.parse(toJsonString(schema, fromBinary(schema, payload))),
  };
}
