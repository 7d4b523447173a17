/** A client of auth.v1.IntrospectionService over native gRPC, which finds out whether a token was revoked. */
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Client, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import {
  IntrospectionService,
  IntrospectRequestSchema,
  type IntrospectResponse,
  IntrospectResponseSchema,
} from "../../../gen/proto/auth/v1/introspection_pb.ts";
import { unavailable } from "../../platform/base/errors.ts";
import { inSpan, type Span, traceHeaders } from "../../platform/base/tracing.ts";

/** The statuses of a call whose key is refused. */
const refusals: ReadonlySet<number> = new Set([status.UNAUTHENTICATED, status.PERMISSION_DENIED]);
/** The timeout of a call, in milliseconds. */
const deadlineMs = 2_000;

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
  const { protocol, host, hostname, port } = new URL(url);
  const isSecure = protocol === "https:";
  const address = port === "" ? `${hostname}:${isSecure ? 443 : 80}` : host;
  const client = new Client(
    `dns:${address}`,
    isSecure ? credentials.createSsl() : credentials.createInsecure(),
    {
      // A connection that was lost silently fails at most the next call, since keepalive soon detects it.
      "grpc.keepalive_time_ms": 10_000,
      "grpc.keepalive_timeout_ms": 2_000,
      "grpc.initial_reconnect_backoff_ms": 100,
      "grpc.min_reconnect_backoff_ms": 100,
      "grpc.max_reconnect_backoff_ms": 1_000,
      "grpc.max_receive_message_length": 65_536,
      "grpc.enable_http_proxy": 0,
      "grpc.enable_channelz": 0,
      "grpc.service_config_disable_resolution": 1,
    },
  );
  const path = `/${IntrospectionService.typeName}/${IntrospectionService.method.introspect.name}`;
  const common = new Metadata();
  common.set("x-api-key", apiKey);
  const name = path.slice(1);
  const attributes = { "rpc.system.name": "grpc", "rpc.method": name, "server.address": hostname };

  function metadataFor(span: Span | undefined): Metadata {
    if (!span) return common;
    const metadata = common.clone();
    for (const [key, value] of Object.entries(traceHeaders(span.context))) metadata.set(key, value);
    return metadata;
  }

  function call(token: string): Promise<IntrospectResponse> {
    let outcome = status[status.OK];
    const called = (span?: Span) => {
      const ended = (error: ServiceError | null) => {
        outcome = status[error?.code ?? status.OK];
        span?.set({ "rpc.response.status_code": outcome });
      };
      return send(token, metadataFor(span), ended);
    };
    return inSpan({ name, kind: "client", attributes }, called, () => outcome);
  }

  function send(
    token: string,
    metadata: Metadata,
    ended: (error: ServiceError | null) => void,
  ): Promise<IntrospectResponse> {
    return new Promise((resolve, reject) => {
      client.makeUnaryRequest(
        path,
        (request: string) =>
          Buffer.from(toBinary(IntrospectRequestSchema, create(IntrospectRequestSchema, { token: request }))),
        (bytes: Buffer) => fromBinary(IntrospectResponseSchema, bytes),
        token,
        metadata,
        { deadline: Date.now() + deadlineMs },
        (error, response) => {
          ended(error);
          if (response) resolve(response);
          else reject(unavailable("The platform security service", error));
        },
      );
    });
  }

  return {
    async introspect(token) {
      const { active, sub, clientId } = await call(token);
      return active ? { sub, clientId } : undefined;
    },
    async prepare() {
      // The call connects and proves the key; no token is called "none".
      const error = await call("none").then(
        () => undefined,
        (reason: unknown) => reason,
      );
      const cause = error instanceof Error ? error.cause : undefined;
      if (cause instanceof Error && "code" in cause && refusals.has(Number(cause.code)))
        throw new RefusedCredentialsError("the platform security service refuses the key", { cause });
    },
    close: () => client.close(),
  };
}
