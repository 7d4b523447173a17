/** The operations of a document whose requests are refused while more arrive than can be answered. */
import { ServerResponse } from "node:http";
import type { Logger } from "pino";
import { overloaded } from "../base/errors.ts";
import { RequestContext } from "../base/request-context.ts";
import type { SheddableOperation } from "../door/admission.ts";
import type { ContractDocument, ContractOperation } from "./document.ts";
import { headerReader } from "./headers.ts";
import { responsesOf } from "./response.ts";

/** The operations that may be refused: they declare a 503. @param service for the metrics */
export function sheddableOperations(
  service: string,
  { operations }: ContractDocument,
  logger: Logger,
): SheddableOperation[] {
  const refusable = operations.filter(({ responses }) => "503" in responses);
  return refusable.map((operation) => ({
    service,
    priority: operation.priority,
    method: operation.method.toUpperCase(),
    paths: (operation.alsoAt === undefined ? [operation.path] : [operation.path, operation.alsoAt]).map(
      routeOf,
    ),
    refuse: refusalOf(operation, logger),
  }));
}

/** A placeholder for the request's id in a response that is made once. */
const someId = "00000000-0000-0000-0000-000000000000";

/** Makes refusals. What does not depend on the request is computed once: a refusal has to cost little. */
function refusalOf(operation: ContractOperation, logger: Logger): SheddableOperation["refuse"] {
  const error = responsesOf(operation).error(new RequestContext(logger, someId), overloaded);
  const { "X-Request-Id": _own, ...fixed } = error.headers;
  const headers = Object.entries(fixed).flat();
  const [before = "", after] = JSON.stringify(error.body).split(someId);
  return (request, response) => {
    const header = headerReader(request);
    const { requestId } = new RequestContext(logger, header("x-request-id"));
    const body = after === undefined ? before : before + JSON.stringify(requestId).slice(1, -1) + after;
    const length = String(Buffer.byteLength(body));
    const all = [...headers, "X-Request-Id", requestId, "Content-Length", length];
    // Both lines do the same. The two types have no signature in common.
    if (response instanceof ServerResponse) response.writeHead(error.status, all);
    else response.writeHead(error.status, all);
    response.end(body);
  };
}

/** A path of a document as Hono routes it. */
export function routeOf(path: string): string {
  return path.replaceAll(/\{(\w+)\}/g, ":$1");
}
