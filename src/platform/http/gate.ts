/** Admits a request to its handler, or refuses it, before anything of its body is read. */
import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Admission, Sheddable, SheddableOperation } from "../door/admission.ts";
import { type CorsPolicy, setCorsHeaders } from "../door/cors-policy.ts";
import { type HttpResponse, onceResponding } from "../door/responding.ts";
import { CachingRouter } from "./caching-router.ts";

/** Finds the operation of a request; undefined if its requests are never refused. */
export type FindSheddable = (method: string, path: string) => Sheddable | undefined;

/** Finds operations by method and path. @param cors for refusals, which do not pass Hono's middleware */
export function findSheddableAmong(
  operations: readonly SheddableOperation[],
  cors: CorsPolicy,
): FindSheddable {
  const router = new CachingRouter<Sheddable>();
  for (const operation of operations) {
    const { service, priority } = operation;
    const sheddable: Sheddable = {
      service,
      priority,
      refuse(request, response) {
        setCorsHeaders(request, response, cors);
        operation.refuse(request, response);
      },
    };
    for (const path of operation.paths) router.add(operation.method, path, sheddable);
  }
  return (method, path) => router.match(method === "HEAD" ? "GET" : method, path)[0][0]?.[0];
}

/** Refuses the request, or admits it until its response is sent or given up, and calls `begin` now or soon. */
export function admit(
  admission: Admission,
  sheddable: Sheddable,
  request: IncomingMessage | Http2ServerRequest,
  response: HttpResponse | Http2ServerResponse,
  begin: () => void,
): void {
  const admitted = admission.enter(sheddable, {
    isComplete: () => request.complete,
    onComplete: (received) => request.once("end", () => !response.closed && received()),
  });
  if (!admitted) {
    sheddable.refuse(request, response);
    return;
  }
  onceResponding("stream" in response ? response.stream : response, () => admission.respond(admitted));
  response.on("close", () => admission.leave(admitted));
  admission.start(admitted, begin);
}
