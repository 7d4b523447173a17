/** Lets a request pass to its handler, or refuses it, before anything of its body is read. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import type { Admission, Guarded, GuardedOperation } from "../base/admission.ts";
import { type CorsPolicy, setCorsHeaders } from "../base/cors-policy.ts";
import { onceResponding } from "../base/responding.ts";
import { CachingRouter } from "./caching-router.ts";

/** Finds what a request asks for; undefined if it is not to be refused. */
export type FindGuarded = (method: string, path: string) => Guarded | undefined;

/** @param cors for refusals, which do not pass Hono's middleware */
export function guardOperations(operations: readonly GuardedOperation[], cors: CorsPolicy): FindGuarded {
  const router = new CachingRouter<Guarded>();
  for (const operation of operations) {
    const { service, priority } = operation;
    const guarded: Guarded = {
      service,
      priority,
      refuse(request, response) {
        setCorsHeaders(request, response, cors);
        operation.refuse(request, response);
      },
    };
    for (const path of operation.paths) router.add(operation.method, path, guarded);
  }
  return (method, path) => router.match(method === "HEAD" ? "GET" : method, path)[0][0]?.[0];
}

/** Refuses the request, or admits it until its response has been sent or cannot be. @returns whether it is admitted */
export function admit(
  admission: Admission,
  guarded: Guarded,
  request: IncomingMessage | Http2ServerRequest,
  response: ServerResponse | Http2ServerResponse,
): boolean {
  const admitted = admission.enter(guarded, {
    isComplete: () => request.complete,
    onComplete: (received) => request.once("end", () => !response.closed && received()),
  });
  if (admitted) {
    onceResponding("stream" in response ? response.stream : response, () => admission.respond(admitted));
    response.once("close", () => admission.leave(admitted));
  } else guarded.refuse(request, response);
  return admitted !== undefined;
}
