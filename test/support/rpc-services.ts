/**
 * Two services for tests of the RPC layer: the real introspection contract, and one with a streaming
 * method, whose descriptor is written by hand. What they do is said by the request's text.
 */
import { setTimeout as delay } from "node:timers/promises";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { fileDesc, type GenService, serviceDesc } from "@bufbuild/protobuf/codegenv2";
import { base64Encode } from "@bufbuild/protobuf/wire";
import {
  FileDescriptorProtoSchema,
  file_google_protobuf_wrappers,
  type StringValueSchema,
  type UInt32ValueSchema,
} from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import {
  IntrospectionService,
  type IntrospectResponseSchema,
} from "../../gen/proto/auth/v1/introspection_pb.ts";
import { type ErrorKind, ErrorKinds, ServiceError } from "../../src/platform/base/errors.ts";
import {
  implement,
  type RpcCall,
  type RpcImplementation,
  type RpcService,
} from "../../src/platform/rpc/service.ts";

const file = fileDesc(
  base64Encode(
    toBinary(
      FileDescriptorProtoSchema,
      create(FileDescriptorProtoSchema, {
        name: "gatepost/test/v1/counter.proto",
        package: "gatepost.test.v1",
        syntax: "proto3",
        dependency: ["google/protobuf/wrappers.proto"],
        service: [
          {
            name: "CounterService",
            method: [
              {
                name: "Count",
                inputType: ".google.protobuf.UInt32Value",
                outputType: ".google.protobuf.StringValue",
                serverStreaming: true,
              },
              {
                name: "Describe",
                inputType: ".google.protobuf.StringValue",
                outputType: ".google.protobuf.StringValue",
              },
            ],
          },
        ],
      }),
    ),
  ),
  [file_google_protobuf_wrappers],
);

/** Count answers with as many messages as are asked for; Describe with what it is told of the call. */
export const CounterService: GenService<{
  count: {
    methodKind: "server_streaming";
    input: typeof UInt32ValueSchema;
    output: typeof StringValueSchema;
  };
  describe: { methodKind: "unary"; input: typeof StringValueSchema; output: typeof StringValueSchema };
}> = serviceDesc(file, 0);

/** A count that begins like a good one and fails after two messages. */
export const failingCount = 1_000_001;
/** A count that says nothing more after its first message. */
export const silentCount = 1_000_002;
/** A count of large messages that never ends. */
export const endlessCount = 1_000_003;
/** What no caller may see. */
export const secret = "select password_hash from identities";

/** What became of the calls, for a test to look at. */
export interface Seen {
  /** Tokens that were asked about, from the moment at which the method runs. */
  readonly asked: string[];
  /** Reasons that signals were aborted with. */
  readonly aborted: unknown[];
  /** Streams whose `finally` ran. */
  closedStreams: number;
  /** Messages that streams have yielded. */
  yielded: number;
}

/** The services, and what they have seen. */
export function testServices(): { services: RpcService[]; seen: Seen } {
  const seen: Seen = { asked: [], aborted: [], closedStreams: 0, yielded: 0 };
  const introspection = implement(IntrospectionService, {
    // Not an async function: what it throws at once is an error like any other.
    introspect({ token }, call) {
      seen.asked.push(token);
      if (token === "defect at once") throw new TypeError(secret);
      return introspect(token, call);
    },
  });
  async function introspect(
    token: string,
    call: RpcCall,
  ): Promise<MessageInitShape<typeof IntrospectResponseSchema>> {
    if (token === "active")
      return { active: true, sub: "user-1", aud: ["app"], userInfo: { userId: "user-1" } };
    if (token.startsWith("fail:")) throw failure(Number(token.slice("fail:".length)));
    if (token === "defect") throw new TypeError(secret);
    if (token === "busy") {
      throw new ServiceError(ErrorKinds.tooManyRequests, "Wait.", { retryAfterSeconds: 7 });
    }
    if (token === "unavailable") {
      throw new ServiceError(ErrorKinds.unavailable, "The database does not answer.", {
        cause: new Error(secret),
        retryAfterSeconds: 2,
      });
    }
    if (token === "strange")
      throw new ServiceError(ErrorKinds.notFound, "Half a pair: \ud800, 100 %, é\nend");
    if (token === "silent") return silence(call, seen);
    if (token === "deaf") return new Promise<never>(() => undefined);
    if (token === "slow") await delay(300);
    return { active: false };
  }
  const counting: RpcImplementation<typeof CounterService> = {
    async *count({ value }, call) {
      try {
        for (let i = 1; i <= value; i++) {
          if (value === failingCount && i > 2)
            throw new ServiceError(ErrorKinds.notFound, "There is no third.");
          if (value === silentCount && i > 1) await silence(call, seen);
          seen.yielded++;
          yield { value: value === endlessCount ? "x".repeat(100_000) : `${i}` };
        }
      } finally {
        seen.closedStreams++;
      }
    },
    async describe({ value }, { context, metadata }) {
      return { value: value === "id" ? context.requestId : (metadata(value) ?? "absent") };
    },
  };
  const counter = implement(CounterService, counting, { maxMessageBytes: { describe: 131_072 } });
  return { services: [introspection, counter], seen };
}

/** An error of each code that there is. */
export function failure(code: Code): ServiceError {
  const grpc = Code[code] ?? "";
  if (!isStatus(grpc)) throw new Error(`there is no status ${code}`);
  return new ServiceError(
    { code: "test", status: 500, grpc, oauth: "server_error", title: "Test" },
    `Failed with ${grpc}.`,
  );
}

function isStatus(name: string): name is ErrorKind["grpc"] {
  return name in Code;
}

function silence(call: RpcCall, seen: Seen): Promise<never> {
  return new Promise((_, reject) => {
    call.signal.addEventListener("abort", () => {
      seen.aborted.push(call.signal.reason);
      reject(call.signal.reason);
    });
  });
}
