/** What the ConformanceService does with a request: it says of itself what the response is to be. */
import {
  type DescMessage,
  type FileRegistry,
  fromJson,
  type JsonObject,
  type Message,
  toBinary,
  toJson,
} from "@bufbuild/protobuf";
import { AnySchema } from "@bufbuild/protobuf/wkt";
import { ConnectError } from "@connectrpc/connect";
import * as v from "valibot";
import { messageOf } from "./protos.ts";

const objectSchema = v.custom<JsonObject>((value) => typeof value === "object" && value !== null);
const headersSchema = v.optional(
  v.array(v.object({ name: v.string(), value: v.optional(v.array(v.string()), []) })),
  [],
);
const requestSchema = v.object({
  responseDefinition: v.optional(
    v.object({
      responseHeaders: headersSchema,
      responseTrailers: headersSchema,
      responseDelayMs: v.optional(v.number(), 0),
      /** In base64: one of a unary call, or any number of a stream. */
      responseData: v.optional(v.union([v.string(), v.array(v.string())]), []),
      error: v.optional(
        v.object({
          code: v.optional(v.number(), 0),
          message: v.optional(v.string(), ""),
          details: v.optional(v.array(objectSchema), []),
        }),
      ),
    }),
    {},
  ),
});

/** What a method sees of its caller. */
export interface Caller {
  readonly headers: Iterable<readonly [name: string, value: string | readonly string[] | undefined]>;
  readonly timeoutMs: number | undefined;
}

/** What a request asks for. */
export interface Plan {
  readonly headers: Record<string, string[]>;
  readonly trailers: Record<string, string[]>;
  readonly delayMs: number;
  /** How many responses a stream has before its end. */
  readonly messages: number;
  /** The response of a unary call, or one of a stream. */
  readonly message: (index?: number) => Message;
  /** The end, unless it is a good one. */
  readonly error: ConnectError | undefined;
}

/** A method in the format that its caller speaks. */
export interface Method {
  readonly input: DescMessage;
  readonly output: DescMessage;
}

const fieldsOf = (headers: v.InferOutput<typeof headersSchema>) =>
  Object.fromEntries(headers.map(({ name, value }) => [name.toLowerCase(), value]));

/** @param types of messages in binary */
export function planFor(
  types: FileRegistry,
  { input, output }: Method,
  request: Message,
  { headers, timeoutMs }: Caller,
): Plan {
  const registry = types;
  const json = toJson(input, request, { registry, enumAsInteger: true });
  const { responseDefinition: asked } = v.parse(requestSchema, json);
  const requestInfo = {
    requestHeaders: [...headers].map(([name, value]) => ({ name, value: [value ?? []].flat() })),
    ...(timeoutMs !== undefined && { timeoutMs: Math.round(timeoutMs) }),
    requests: [{ "@type": `type.googleapis.com/${input.typeName}`, ...v.parse(objectSchema, json) }],
  };
  const info = messageOf(types, "ConformancePayload.RequestInfo");
  const data = [asked.responseData].flat();
  function failure(): ConnectError | undefined {
    if (!asked.error) return undefined;
    const error = new ConnectError(asked.error.message, asked.error.code);
    const details = asked.error.details.map((detail) => fromJson(AnySchema, detail, { registry }));
    error.details = details.map(({ typeUrl, value }) => ({
      type: typeUrl.slice(typeUrl.lastIndexOf("/") + 1),
      value,
    }));
    if (data.length === 0)
      error.details.push({
        type: info.typeName,
        value: toBinary(info, fromJson(info, requestInfo, { registry })),
      });
    return error;
  }
  return {
    headers: fieldsOf(asked.responseHeaders),
    trailers: fieldsOf(asked.responseTrailers),
    delayMs: asked.responseDelayMs,
    error: failure(),
    message: (index = 0) =>
      fromJson(
        output,
        { payload: { data: data[index] ?? "", ...(index === 0 && { requestInfo }) } },
        { registry },
      ),
    messages: data.length,
  };
}
