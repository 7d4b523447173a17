/**
 * The binding of an OpenAPI document to Hono, and of its plainest operations to Node's own request and response. For
 * each operation in this order: context, credentials, Accept, body, credentials in it, validation, handler, response.
 */
import { METHODS } from "node:http";
import type { Http2Bindings, HttpBindings } from "@hono/node-server";
import type { ValidateFunction } from "ajv";
import { type Context, Hono } from "hono";
import type { Logger } from "pino";
import { withRequestTimeout } from "../base/deadlines.ts";
import { asServiceError, ErrorKinds, logMessage, ServiceError } from "../base/errors.ts";
import type { HttpObserver } from "../base/observers.ts";
import { RequestContext } from "../base/request-context.ts";
import { isTracing, type Span, within } from "../base/tracing.ts";
import { type CallerAddress, createCallerAddress } from "../door/caller-address.ts";
import type { Route } from "../door/door.ts";
import type { NodeRequest } from "../door/responses.ts";
import {
  fetchResponse,
  problem,
  type RenderedResponse,
  type ResponseParts,
  rendered,
  sendResponse,
  toResponse,
} from "../door/responses.ts";
import { challengeOf } from "./challenge.ts";
import type { ContractDocument, ContractOperation } from "./document.ts";
import type { BodySecurityHandler, Call, Handlers, Rules, SecurityHandler } from "./handlers.ts";
import { type HeaderReader, headerReader } from "./handlers.ts";
import { hasUrlParameters, type ParameterValues, parameterReader } from "./parameters.ts";
import { readBody } from "./request-body.ts";
import {
  acceptsJson,
  contractViolations,
  jsonNames,
  refusalOf,
  responsesOf,
  type Success,
} from "./response.ts";
import { type BodyRules, validate } from "./validation.ts";

export interface Binding<Operations, Caller> {
  readonly service: string;
  readonly document: ContractDocument;
  readonly handlers: Handlers<Operations, Caller>;
  readonly security: Readonly<Record<string, SecurityHandler<Caller>>>;
  /** The caller of an operation that lists no scheme (`{}`), by its body, before that is validated. */
  readonly bodySecurity?: BodySecurityHandler<Caller>;
  /** Of operations whose bodies may violate more than their schemas: what the handler would refuse. */
  readonly rules?: Rules<Operations>;
  readonly logger: Logger;
  readonly observer: HttpObserver;
  /** Check every response against the document; in tests and development. */
  readonly validateResponses: boolean;
  /** Unless given, no proxy is trusted to name the caller. */
  readonly callerAddress?: CallerAddress | undefined;
}

/** A context with Node's own request and response, which @hono/node-server adds. */
type NodeContext = Context<{ Bindings: HttpBindings | Http2Bindings }>;

export interface BoundContract {
  readonly app: Hono;
  /** Of each operation: whether it may be refused and, where requests have a body and a plain URL, a way beside Hono. */
  readonly routes: readonly Route[];
}

type AnyHandler<Caller> = (
  request: { path: object; query: object; body: unknown },
  call: Call<Caller>,
) => Promise<Success>;

/** Routes for every operation, with 405 and OPTIONS. @throws if an operation or a security scheme has no handler */
export function bindContract<Operations, Caller>(binding: Binding<Operations, Caller>): BoundContract {
  const app = new Hono();
  const routes: Route[] = [];
  const handlers = new Map<string, AnyHandler<Caller>>(Object.entries(binding.handlers));
  const { service, observer } = binding;
  for (const { id: operation, responses } of binding.document.operations) {
    for (const status of Object.keys(responses).map(Number).filter(isSuccess))
      observer.serves({ service, operation, status });
  }
  for (const [path, operations] of byPath(binding.document.operations)) {
    const route = path.replaceAll(/\{(\w+)\}/g, ":$1");
    for (const operation of operations) {
      const handler = handlers.get(operation.id);
      if (!handler) throw new Error(`${operation.id} has no handler`);
      const method = operation.method.toUpperCase();
      const respond = bindOperation(binding, operation, handler);
      app.on(method, route, async (c: NodeContext) =>
        fetchResponse(await respond(c.env.incoming, () => c.req.url)),
      );
      const isDirect = operation.bodyTypes && !hasUrlParameters(operation);
      const sheddable = sheddableOf(binding, operation);
      routes.push({ method, path, sheddable, ...(isDirect && { direct: directHandler(respond) }) });
    }
    const methods = allowedMethods(operations);
    app.options(route, (c) => {
      return optionsOf(contextOf(binding.logger, headersOf(c)), methods);
    });
    // Each method by its name: a route for all methods would also match the requests of the operations.
    app.on(
      METHODS.filter((method) => !methods.includes(method)),
      route,
      refuseMethod(binding, operations, methods),
    );
  }
  return { app, routes };
}

/** Those that declare a 503 may be refused. */
function sheddableOf<O, Caller>({ service, logger }: Binding<O, Caller>, operation: ContractOperation) {
  if (!("503" in operation.responses)) return undefined;
  return { service, priority: operation.priority, refuse: refusalOf(operation, logger) };
}

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** The paths that are served: literal ones before templated ones, as OpenAPI matches them. */
function byPath(operations: readonly ContractOperation[]): [string, ContractOperation[]][] {
  const parameters = (path: string) => path.split("{").length;
  const again = operations.flatMap((operation) =>
    operation.alsoAt === undefined ? [] : [{ ...operation, path: operation.alsoAt }],
  );
  return [...Map.groupBy([...operations, ...again], (operation) => operation.path)].sort(
    ([a], [b]) => parameters(a) - parameters(b),
  );
}

function allowedMethods(operations: readonly ContractOperation[]): string[] {
  const methods = operations.map((operation) => operation.method.toUpperCase());
  return [...methods, ...(methods.includes("GET") ? ["HEAD"] : []), "OPTIONS"];
}

function headersOf(c: Context): HeaderReader {
  return (name) => c.req.header(name);
}

function contextOf(logger: Logger, header: HeaderReader): RequestContext {
  return new RequestContext(logger, header("x-request-id"), header("traceparent"));
}

function refuseMethod<O, Caller>(
  { logger }: Binding<O, Caller>,
  operations: readonly ContractOperation[],
  allow: readonly string[],
) {
  const first = operations[0];
  if (!first) throw new Error("a path without operations");
  const responses = responsesOf(first);
  return (c: Context): Response => {
    return toResponse(responses.error(contextOf(logger, headersOf(c)), wrongMethod(c, allow)));
  };
}

/** The error for a method that a path does not have. */
export function wrongMethod(c: Context, allow: readonly string[]): ServiceError {
  const detail = `${c.req.method} is not a method of this path; it has: ${allow.join(", ")}.`;
  return new ServiceError(ErrorKinds.methodNotAllowed, detail, { allow });
}

/** The response to OPTIONS. */
export function optionsOf({ requestId }: RequestContext, allow: readonly string[]): Response {
  return new Response(null, {
    status: 204,
    headers: { Allow: allow.join(", "), "X-Request-Id": requestId },
  });
}

/** Responds to a request of one operation. @param url the whole URL, for operations with parameters in it */
type Respond = (incoming: NodeRequest, url: () => string) => Promise<RenderedResponse>;

function directHandler(respond: Respond): NonNullable<Route["direct"]> {
  return async (request, response) => {
    sendResponse(response, await respond(request, noUrl));
  };
}

function noUrl(): never {
  throw new Error("the operations of direct routes have no parameters in their URLs");
}

const noParameters: ParameterValues = { path: {}, query: {} };

/** Makes the handler of one operation. Everything that does not depend on the request is computed here, once. */
function bindOperation<O, Caller>(
  binding: Binding<O, Caller>,
  operation: ContractOperation,
  handler: AnyHandler<Caller>,
): Respond {
  const { logger, observer, service, validateResponses } = binding;
  const { callerAddress = createCallerAddress([]) } = binding;
  const responses = responsesOf(operation);
  const securityHandlers = securityOf(binding, operation);
  const isProtected = securityHandlers.length > 0 && !operation.isSecurityOptional;
  const identifyByBody = operation.isSecurityOptional ? binding.bodySecurity : undefined;
  const unauthenticated = `Credentials are missing or wrong. ${challengeOf(operation)?.advice}`;
  const returnsJson = Object.values(operation.responses).some(({ content }) => content?.["application/json"]);
  const checksAccept = returnsJson && operation.responses["406"] !== undefined;
  const names = jsonNames(operation);
  const readParameters = operation.parameters.length > 0 ? parameterReader(operation) : () => noParameters;
  const rules = new Map<string, BodyRules>(Object.entries(binding.rules ?? {})).get(operation.id);
  let validators: readonly ValidateFunction[] | undefined;

  function refuseUnacceptable(header: HeaderReader): void {
    if (!checksAccept || acceptsJson(header("accept"), names)) return;
    const detail = "This operation answers application/json, which the Accept header rules out.";
    throw new ServiceError(ErrorKinds.notAcceptable, detail);
  }

  /** Awaits only a pending caller, the body and the handler: each await costs as much as a small check. */
  async function run(
    incoming: NodeRequest,
    url: () => string,
    context: RequestContext,
    header: HeaderReader,
  ): Promise<Success> {
    // HTTP/2 permits any case, and Hono routes by upper case.
    const method = (incoming.method ?? "GET").toUpperCase();
    const address = () => callerAddress(incoming, header);
    let caller: Caller | undefined;
    for (const identify of securityHandlers) {
      const found = identify({ context, method, header, address });
      caller = isPending(found) ? await withRequestTimeout(found) : found;
      if (caller !== undefined) break;
    }
    if (caller === undefined && isProtected) {
      throw new ServiceError(ErrorKinds.unauthenticated, unauthenticated);
    }
    refuseUnacceptable(header);
    const parameters = readParameters(url, header);
    const requestBody = operation.bodyTypes && (await readBody(header, incoming, operation));
    if (identifyByBody) {
      const found = identifyByBody(requestBody, { context, method, header, address, caller });
      caller = isPending(found) ? await withRequestTimeout(found) : found;
    }
    const values = requestBody === undefined ? parameters : { ...parameters, requestBody };
    validators ??= operation.requestValidators();
    validate(validators, values, rules);
    const { path, query } = parameters;
    // Without `await`, returning the promise costs two more turns of the microtask queue.
    return await withRequestTimeout(
      handler({ path, query, body: requestBody }, { context, method, header, address, caller }),
    );
  }

  function checked(context: RequestContext, parts: ResponseParts): ResponseParts {
    const violations = contractViolations(operation, parts);
    if (violations.length === 0) return parts;
    context.log.error(
      { operation: operation.id, status: parts.status, violations },
      "A response violates the contract",
    );
    return responses.error(context, asServiceError(new Error("the response violates the contract")));
  }

  async function respond(
    incoming: NodeRequest,
    url: () => string,
    context: RequestContext,
    header: HeaderReader,
    span?: Span,
  ): Promise<RenderedResponse> {
    const started = performance.now();
    let response: RenderedResponse;
    try {
      let parts = responses.success(context, await run(incoming, url, context, header));
      if (validateResponses) parts = checked(context, parts);
      response = rendered(parts);
    } catch (thrown) {
      const error = asServiceError(thrown);
      logError(context, operation.id, error);
      let parts = responses.error(context, error, header("authorization"));
      if (validateResponses) parts = checked(context, parts);
      response = rendered(parts);
    }
    const { status } = response;
    const durationMs = performance.now() - started;
    observer.completed({
      service,
      operation: operation.id,
      status,
      seconds: durationMs / 1000,
    });
    if (logger.isLevelEnabled("debug")) {
      context.log.debug({ operation: operation.id, status, durationMs }, "A request completed");
    }
    span?.set({ "http.response.status_code": status });
    span?.end(status >= 500 ? `${status}` : undefined);
    return response;
  }

  const spanName = `${operation.method.toUpperCase()} ${operation.path}`;
  const spanAttributes = {
    "http.request.method": operation.method.toUpperCase(),
    "http.route": operation.path,
    // What a caller writes in place of a parameter may be anything.
    ...(!operation.path.includes("{") && { "url.path": operation.path }),
  };

  return (incoming, url) => {
    const header = headerReader(incoming);
    const context = contextOf(logger, header);
    if (!isTracing()) return respond(incoming, url, context, header);
    const span = context.begin(spanName, spanAttributes, header("tracestate"));
    return within(span, () => respond(incoming, url, context, header, span));
  };
}

/** Whether the value is a thenable. Were it taken for a caller, every request would be authenticated. */
function isPending<T>(value: T | Promise<T>): value is Promise<T> {
  return typeof value === "object" && value !== null && "then" in value;
}

function logError(context: RequestContext, operation: string, error: ServiceError): void {
  if (error.kind.status === 500)
    context.log.error({ operation, err: error.cause ?? error }, "A request failed");
  // Where it has no cause it was refused on purpose, and its own stack says nothing.
  else if (error.kind.status === 503)
    context.log.warn(
      { operation, ...(error.cause !== undefined && { err: error.cause }) },
      logMessage(error),
    );
}

/** The handlers of the operation's security alternatives, in the document's order; none for a public operation. */
function securityOf<O, Caller>({ security }: Binding<O, Caller>, operation: ContractOperation) {
  const named = operation.security.filter((names) => names.length > 0);
  return named.map((names) => {
    const [name, ...more] = names;
    const handler = name === undefined ? undefined : security[name];
    if (!handler || more.length > 0)
      throw new Error(`${operation.id}: no handler for security ${names.join("+")}`);
    return handler;
  });
}

export function notFound(logger: Logger): (c: Context) => Response {
  return (c) => {
    const context = contextOf(logger, headersOf(c));
    const error = new ServiceError(
      ErrorKinds.notFound,
      "There is nothing at this path. The API reference lists what there is.",
    );
    return toResponse(problem(context, 404, { "X-Request-Id": context.requestId }, error));
  };
}
