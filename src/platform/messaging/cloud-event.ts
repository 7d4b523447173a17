/** CloudEvents 1.0, inside the process and in binary mode over NATS: attributes in headers, data as binary Protobuf. */
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
  /** The span in which the event was written, if it was traced (CloudEvents' extension for distributed tracing). */
  readonly traceparent?: string;
  /** What else the trace carries, for vendors and samplers, if there is anything (the same extension). */
  readonly tracestate?: string;
}

export interface EncodedEvent {
  readonly headers: ReadonlyMap<string, string>;
  readonly payload: Uint8Array;
}

const specversion = "1.0";
/** What should be passed on at least: 512 characters of visible ASCII and spaces (W3C Trace Context, section 3.3). */
const tracestatePattern = /^[ -~]{1,512}$/;
const contentType = "application/protobuf";

/** The attributes that have a header in every event. */
const attributes = ["id", "source", "type", "subject", "time"] as const;
/** Those of traced events. */
const traceAttributes = ["traceparent", "tracestate"] as const;
const header = (attribute: string) => `ce-${attribute}`;

/** A header's value: all but visible ASCII, quotation marks and percent signs is percent-encoded (NATS binding). */
const escaped = (text: string) => text.replace(/[^!#$&-~]/gu, encodeURIComponent);

/** Encodes an event for the broker, without fields of a newer version. @throws if the data does not fit the schema */
export function encodeEvent(event: CloudEvent, schema: DescMessage): EncodedEvent {
  return {
    headers: new Map([
      [header("specversion"), specversion],
      ...attributes.map((name) => [header(name), escaped(event[name])] as const),
      ...traceAttributes.flatMap((name) => {
        const value = event[name];
        return value === undefined ? [] : [[header(name), escaped(value)] as const];
      }),
      ["content-type", contentType],
    ]),
    payload: toBinary(
      schema,
      fromJsonString(schema, JSON.stringify(event.data), { ignoreUnknownFields: true }),
    ),
  };
}

/**
 * Decodes an event of the broker. @param get the value of a header, if there is one
 * @throws if the message is no event of this schema; the error quotes nothing of the message
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
  return {
    specversion,
    ...traceOf(get),
    id,
    source: value("source"),
    type: value("type"),
    subject: value("subject"),
    time: value("time"),
    datacontenttype: "application/json",
    data: JSON.parse(toJsonString(schema, fromBinary(schema, payload))),
  };
}

/** The trace of an event. A header that is not valid is ignored: it is no reason to leave the event out. */
function traceOf(
  get: (header: string) => string | undefined,
): Pick<CloudEvent, "traceparent" | "tracestate"> {
  const traceparent = get(header("traceparent")) ?? "";
  if (!readTraceparent(traceparent)) return {};
  const tracestate = readTracestate(get(header("tracestate")) ?? "");
  return { traceparent, ...(tracestate !== undefined && { tracestate }) };
}

/** @returns undefined if there is none, or it could not be passed on */
function readTracestate(escapedText: string): string | undefined {
  try {
    const text = decodeURIComponent(escapedText);
    return tracestatePattern.test(text) ? text : undefined;
  } catch {
    return undefined;
  }
}
