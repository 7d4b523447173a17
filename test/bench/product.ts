/** The auth service as a benchmark runs it: a process of its own, in production mode. */
import { introspector, type Preparation } from "./prepare.ts";
import { type BenchServer, type Core, measure, startBenchServer } from "./processes.ts";

export const ports = {
  http: 18_080,
  grpc: 19_090,
  management: 18_081,
  bareHttp: 18_090,
  bareGrpc: 19_091,
};
/** Between the ports of a process and those of the next one. */
const betweenProcesses = 200;
export const introspectPath = "/api/auth/oauth2/v1/introspect";
export const tokensPath = "/api/auth/oauth2/v1/tokens";

/** The Authorization header of a client. */
export function basic({ id, secret }: { id: string; secret: string }): string {
  return `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;
}

/** The management port of one of several processes; of the first unless told otherwise. */
export const managementOf = (place = 0) => `http://127.0.0.1:${portAt(ports.management, place)}`;

/** @param place where there are several processes: 0 for the first, whose ports are {@link ports} */
export function portAt(first: number, place: number): number {
  return first + place * betweenProcesses;
}

/**
 * @param place as for {@link portAt}
 * @param program the start of another checkout, as an absolute path; this one's unless given
 * @param core the servers' own unless given
 */
export function startProduct(
  { env }: Preparation,
  place = 0,
  settings: Readonly<Record<string, string>> = {},
  program = "../../src/start.js",
  core: Core = 0,
): Promise<BenchServer> {
  const port = (first: number) => String(portAt(first, place));
  const portSettings = {
    SERVICES: "auth",
    SERVER_PORT: port(ports.http),
    GRPC_PORT: port(ports.grpc),
    MANAGEMENT_PORT: port(ports.management),
  };
  const isReady = async () => (await fetch(`${managementOf(place)}/health/ready`)).ok;
  return startBenchServer(program, [], { ...env, ...portSettings, ...settings }, isReady, core);
}

/** Asks about every token once, as happens in the first minutes of a process. */
export async function warmIntrospection(
  { introspections }: Preparation,
  place = 0,
  caller = introspector,
): Promise<void> {
  const target = ["http", String(portAt(ports.http, place)), basic(caller), introspections];
  await measure(1, "load-closed.ts", [...target, "64", "once"]);
}
