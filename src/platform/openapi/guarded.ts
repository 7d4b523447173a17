/** The operations of a document that are refused while more requests arrive than can be answered. */
import type { Logger } from "pino";
import { type GuardedOperation, overloaded } from "../base/admission.ts";
import { sendResponse } from "../base/problem.ts";
import { RequestContext } from "../base/request-context.ts";
import type { ContractDocument } from "./document.ts";
import { headerReader } from "./headers.ts";
import { responsesOf } from "./response.ts";

/**
 * The operations that may be refused: those that declare a 503. The others, such as cached documents, cost no more than
 * a refusal.
 * @param service for the metrics
 */
export function guardedOperations(
  service: string,
  { operations }: ContractDocument,
  logger: Logger,
): GuardedOperation[] {
  const refusable = operations.filter(({ responses }) => "503" in responses);
  return refusable.map((operation) => {
    const responses = responsesOf(operation);
    const paths = operation.alsoAt === undefined ? [operation.path] : [operation.path, operation.alsoAt];
    return {
      service,
      priority: operation.priority,
      method: operation.method.toUpperCase(),
      paths: paths.map(routeOf),
      refuse(request, response) {
        const header = headerReader(request);
        const context = new RequestContext(logger, header("x-request-id"), header("traceparent"));
        sendResponse(response, responses.error(context, overloaded));
      },
    };
  });
}

/** A path of a document as Hono routes it. */
export function routeOf(path: string): string {
  return path.replaceAll(/\{(\w+)\}/g, ":$1");
}
