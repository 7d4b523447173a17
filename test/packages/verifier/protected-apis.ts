/** APIs that the installed verifier protects, called from outside. */
import { join } from "node:path";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import { startProgram } from "../../support/program.ts";
import { waitFor } from "../../support/wait-for.ts";
import type { Framework } from "./installed-apis.ts";

export type Addresses = Readonly<
  Record<"strict" | "keys" | "cold", Readonly<Record<Framework | "routes", string>>>
>;

export async function startApis(
  folder: string,
  issuer: string,
  cleanup: AsyncDisposableStack,
): Promise<Addresses> {
  const program = startProgram([process.execPath, join(folder, "main.ts"), issuer], {}, folder);
  cleanup.defer(async () => {
    program.child.kill("SIGKILL");
    await program.ended();
  });
  return waitFor(() => {
    const [line] = /^\{.*\}$/m.exec(program.stdout()) ?? [];
    if (line === undefined) throw new Error(`The APIs do not listen yet: ${program.output()}`);
    return JSON.parse(line);
  });
}

/** How a request ended, as an HTTP status whatever the protocol. */
export interface Result {
  readonly status: number | undefined;
  readonly user: string | undefined;
  readonly challenge: string | undefined;
  readonly retryAfter: string | undefined;
}

export function call(framework: Framework, address: string, authorization?: string): Promise<Result> {
  if (framework === "grpc-js") return callGrpc(address, "/orders.v1.Orders/WhoAmI", authorization);
  const isConnect = framework === "connect";
  return callHttp(isConnect ? `${address}/grpc.health.v1.Health/Check` : address, isConnect, authorization);
}

async function callHttp(url: string, isConnect: boolean, authorization?: string): Promise<Result> {
  const headers = {
    ...(authorization !== undefined && { authorization }),
    ...(isConnect && { "content-type": "application/json" }),
  };
  const response = await fetch(url, { headers, ...(isConnect && { method: "POST", body: "{}" }) });
  const text = await response.text();
  return {
    status: response.status,
    user: response.ok ? (response.headers.get("x-user") ?? text) : undefined,
    challenge: response.headers.get("www-authenticate") ?? undefined,
    retryAfter: response.headers.get("retry-after") ?? undefined,
  };
}

const statuses: Readonly<Record<number, number>> = { 16: 401, 7: 403, 14: 503 };

export function callGrpc(address: string, path: string, authorization?: string): Promise<Result> {
  const client = new Client(address, credentials.createInsecure());
  const metadata = new Metadata();
  if (authorization !== undefined) metadata.set("authorization", authorization);
  const bytes = (value: Buffer) => value;
  return new Promise<Result>((resolve) => {
    client.makeUnaryRequest(path, bytes, bytes, Buffer.alloc(0), metadata, (error, value) => {
      const first = (name: string) => error?.metadata.get(name)[0]?.toString();
      resolve({
        status: error ? statuses[error.code] : 200,
        user: value?.toString(),
        challenge: first("www-authenticate"),
        retryAfter: first("retry-after"),
      });
    });
  }).finally(() => client.close());
}
