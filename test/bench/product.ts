/** The auth service as a benchmark runs it: a process of its own, in production mode. */
import { introspector, type Preparation } from "./prepare.ts";
import { type BenchServer, measure, startBenchServer } from "./processes.ts";

export const ports = {
  http: 18_080,
  grpc: 19_090,
  management: 18_081,
  bareHttp: 18_090,
  bareGrpc: 19_091,
};
export const introspectPath = "/api/auth/oauth2/v1/introspect";
export const tokensPath = "/api/auth/oauth2/v1/tokens";

/** The Authorization header of a client. */
export function basic({ id, secret }: { id: string; secret: string }): string {
  return `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;
}

export function startProduct({ env }: Preparation): Promise<BenchServer> {
  const portSettings = {
    SERVICES: "auth",
    SERVER_PORT: String(ports.http),
    GRPC_PORT: String(ports.grpc),
    MANAGEMENT_PORT: String(ports.management),
  };
  const isReady = async () => (await fetch(`http://127.0.0.1:${ports.management}/health/ready`)).ok;
  return startBenchServer("../../src/start.js", [], { ...env, ...portSettings }, isReady);
}

/** Asks about every token once, as happens in the first minutes of a process. */
export async function warmIntrospection({ introspections }: Preparation): Promise<void> {
  const target = [String(ports.http), introspectPath, basic(introspector), introspections];
  await measure(1, "load-http.ts", [...target, '"active":true', "64", "once"]);
}
