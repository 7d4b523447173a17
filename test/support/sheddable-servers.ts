/** The sample API and the test services on real ports, as one process serves them: what is too much is refused. */
import { onTestFinished } from "vitest";
import { IntrospectionService } from "../../gen/proto/auth/v1/introspection_pb.ts";
import { Admission } from "../../src/platform/door/admission.ts";
import { corsPolicy } from "../../src/platform/door/cors-policy.ts";
import { createHttpServer } from "../../src/platform/http/server.ts";
import { createMetrics } from "../../src/platform/observability/metrics.ts";
import { bindContract } from "../../src/platform/openapi/bind.ts";
import { loadContract } from "../../src/platform/openapi/document.ts";
import { createGrpcServer } from "../../src/platform/rpc/grpc-server.ts";
import { createRpcHandler } from "../../src/platform/rpc/handler.ts";
import { implement } from "../../src/platform/rpc/service.ts";
import { captureLog } from "./captured-log.ts";
import { type SampleOperations, sampleHandlers, sampleSecurity, sampleTexts } from "./sample-api.ts";

interface SheddableServersOptions {
  /** From which browsers may call. */
  readonly origin?: string;
  /** Of the port of HTTP. */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
  /** Called for each introspection that is started. */
  readonly introspecting?: () => void;
  /** All is refused that may be. */
  readonly isOverloaded?: boolean;
}

class Overloaded extends Admission {
  override enter(): undefined {
    return undefined;
  }
}

/**
 * `makeToken` (priority normal) and introspection (high) are answered when they are let go; all else at once. Ends with
 * the test.
 */
export async function startSheddableServers({
  origin = "https://app.example",
  tls,
  introspecting = () => undefined,
  isOverloaded = false,
}: SheddableServersOptions = {}) {
  const { logger, lines } = captureLog();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  const metrics = createMetrics("sample", "1.0.0");
  const admission = new (isOverloaded ? Overloaded : Admission)({ logger, observer: metrics.admission });
  const document = await loadContract(sampleTexts);
  const introspection = implement(
    IntrospectionService,
    {
      introspect: async () => {
        introspecting();
        await released;
        return { active: true };
      },
    },
    { priority: "high" },
  );
  const { app, routes: operations } = bindContract<SampleOperations, string>({
    service: "sample",
    document,
    handlers: {
      ...sampleHandlers,
      async makeToken({ body }) {
        await released;
        return { status: 200, body: { got: body } };
      },
    },
    security: sampleSecurity,
    logger,
    observer: metrics.http,
    validateResponses: true,
  });
  const cors = corsPolicy([origin], []);
  const rpc = { services: [introspection], logger, observer: metrics.rpc };
  const routes = [...operations, ...createRpcHandler(rpc).routes];
  admission.register(routes.flatMap(({ sheddable }) => sheddable ?? []));
  const http = createHttpServer({ logger, tls });
  http.serve({ fetch: app.fetch, routes, cors, admission });
  const grpc = createGrpcServer({ logger, observer: metrics.rpc, admission });
  grpc.serve(rpc.services);
  grpc.setServing(true);
  const [httpPort, grpcPort] = await Promise.all([http.listen("127.0.0.1", 0), grpc.listen("127.0.0.1", 0)]);
  onTestFinished(async () => {
    release();
    await Promise.all([http.close(100), grpc.close(100)]);
  });
  return {
    httpPort,
    grpcPort,
    release,
    lines,
    /** The value of a metric by its name with labels; undefined if there is none. */
    async metric(name: string): Promise<number | undefined> {
      const text = await metrics.registry.metrics();
      const line = text.split("\n").find((one) => one.startsWith(`${name} `));
      return line === undefined ? undefined : Number(line.slice(name.length + 1));
    },
  };
}
