/** A client of auth.v1.IntrospectionService over native gRPC, which finds out whether a token was revoked. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  IntrospectionService,
  IntrospectRequestSchema,
  type IntrospectResponse,
  IntrospectResponseSchema,
} from "../../../gen/proto/auth/v1/introspection_pb.ts";
import { unavailable } from "../../platform/base/errors.ts";
import { inSpan, type Span, traceHeaders } from "../../platform/base/tracing.ts";
import { GrpcError, grpcFields, unary } from "../../platform/http2/grpc.ts";
import { Http2Pool } from "../../platform/http2/pool.ts";

/** The statuses of a call whose key is refused. */
const refusals: ReadonlySet<string> = new Set(["UNAUTHENTICATED", "PERMISSION_DENIED"]);
const connections = {
  maxSessions: 4,
  maxStreams: 1_000,
  leastStreams: 100,
  /** From the call to the end of its response, the wait for a connection and one repeat included. */
  timeoutMs: 2_000,
  maxTries: 2,
  // A connection that was lost silently fails at most the next call, since a PING soon detects it. Servers of gRPC
  // take many PINGs without calls in flight for an attack.
  silenceMs: 10_000,
  idleSilenceMs: Number.POSITIVE_INFINITY,
  pongMs: 2_000,
};

/** The subject and client of an active token; undefined if the service does not return them. */
interface ActiveToken {
  readonly sub: string | undefined;
  readonly clientId: string | undefined;
}

export interface Introspection {
  /**
   * Introspects the token. Results are not cached, as a token may be revoked at any moment.
   * @returns undefined if the token is not active
   * @throws unavailable if the call fails
   */
  introspect(token: string): Promise<ActiveToken | undefined>;
  /**
   * Does beforehand what the first caller would wait for. If it fails, the next call does it again.
   * @throws RefusedCredentialsError if the service refuses our credentials, as it then does in every call
   */
  prepare(): Promise<void>;
  close(): void;
}

/** The service that introspects refuses our own credentials. */
export class RefusedCredentialsError extends Error {
  override readonly name = "RefusedCredentialsError";
}

/** @param url scheme, host and port; https is TLS with the certificate authorities that Node.js trusts */
export function createIntrospectionClient(url: string, apiKey: string): Introspection {
  const { origin, hostname } = new URL(url);
  const pool = new Http2Pool({ origin, ...connections });
  const name = `${IntrospectionService.typeName}/${IntrospectionService.method.introspect.name}`;
  const path = `/${name}`;
  const shared = grpcFields(origin, connections.timeoutMs, ["x-api-key", apiKey]);
  const attributes = { "rpc.system.name": "grpc", "rpc.method": name, "server.address": hostname };

  function call(token: string): Promise<IntrospectResponse> {
    let outcome = "OK";
    const called = async (span?: Span) => {
      try {
        return await send(token, span);
      } catch (error) {
        outcome = error instanceof GrpcError ? error.status : "INTERNAL";
        throw unavailable(
          "The platform security service",
          new Error(`PLATFORM_SECURITY_URL is ${origin}: the call failed`, { cause: error }),
        );
      } finally {
        span?.set({ "rpc.response.status_code": outcome });
      }
    };
    return inSpan({ name, kind: "client", attributes }, called, () => outcome);
  }

  async function send(token: string, span: Span | undefined): Promise<IntrospectResponse> {
    const request = toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token }));
    const own = span ? Object.entries(traceHeaders(span.context)).flat() : [];
    return fromBinary(IntrospectResponseSchema, await unary(pool, { path, shared, own }, request));
  }

  return {
    async introspect(token) {
      const { active, sub, clientId } = await call(token);
      return active ? { sub, clientId } : undefined;
    },
    async prepare() {
      // The call connects and proves the key; no token is called "none".
      await send("none", undefined).catch((cause: unknown) => {
        if (cause instanceof GrpcError && refusals.has(cause.status))
          throw new RefusedCredentialsError("the platform security service refuses the key", { cause });
      });
    },
    close: () => void pool.close(),
  };
}
