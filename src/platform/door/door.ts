/** The way of a request to what serves it: matched once, then admitted or refused by its route, and begun. */
import type { IncomingMessage } from "node:http";
import type { ServerHttp2Stream } from "node:http2";
import { withTimeout } from "../base/deadlines.ts";
import type { Prioritized } from "../base/priority.ts";
import type { Admission } from "./admission.ts";
import { applyCors, type CorsPolicy } from "./cors-policy.ts";
import { HttpResponse, type NodeRequest, type NodeResponse, onceResponding } from "./responses.ts";
import { normalize, templatedSegments, templateTest, withoutQuery } from "./targets.ts";

/** An operation or method whose requests may be refused while more arrive than can be answered. */
export interface Sheddable extends Prioritized {
  /** Writes the response of a refusal. Nothing of the request's body has been read. */
  refuse(request: NodeRequest, response: NodeResponse): void;
}

/** What serves the requests of a path and a method: an operation of an API, or a method over RPC. */
export interface Route {
  /** In upper case; undefined: each that no other route of the path has. A GET serves HEAD, too. */
  readonly method: string | undefined;
  /** As a document has it: nothing encoded without need, and `{name}` for any segment. */
  readonly path: string;
  /** Absent: its requests are never refused. */
  readonly sheddable?: Sheddable | undefined;
  /**
   * Responds to one of the plainest requests, which needs nothing of Hono. Rejects if the response cannot be written,
   * and throws nothing before. Absent: it has none of these.
   */
  direct?(request: IncomingMessage, response: HttpResponse): Promise<void>;
  /** Responds to any other. The promise is pending while its work goes on. Absent: what serves all the rest does. */
  handle?(request: NodeRequest, response: NodeResponse): Promise<void>;
}

interface DoorOptions {
  readonly routes?: readonly Route[];
  /** Whose headers are set before every response, and by which preflights get theirs. */
  readonly cors?: CorsPolicy | undefined;
  /** Absent: no request is refused. */
  readonly admission?: Admission | undefined;
  /** Serves every request that its route does not serve directly. Never rejects. */
  serve(route: Route | undefined, request: NodeRequest, response: NodeResponse): Promise<void>;
  /** Sends an error in place of a response that could not be written. */
  fail(response: NodeResponse, thrown: unknown): void;
}

/** @throws if two routes have the same method and path */
export function createDoor({ routes = [], cors, admission, serve, fail }: DoorOptions) {
  const find = tableOf(routes);
  const policy = cors?.origins.length ? cors : undefined;

  function begin(route: Route | undefined, request: NodeRequest, response: NodeResponse): Promise<void> {
    if (route?.direct && response instanceof HttpResponse && isPlain(route, response.req))
      return route.direct(response.req, response).catch((thrown: unknown) => fail(response, thrown));
    return serve(route, request, response);
  }

  return {
    /** Finds the route of a request, and brings its target into its one form. */
    match: find,

    /** Refuses the request, or lets it in, now or soon; never if its client has gone by then. */
    enter(route: Route | undefined, request: NodeRequest, response: NodeResponse): void {
      if (policy && applyCors(request, response, policy)) return;
      const sheddable = admission && route?.sheddable;
      if (!sheddable) {
        void begin(route, request, response);
        return;
      }
      const on = "stream" in response ? response.stream : response;
      if (!admit(admission, sheddable, on, () => begin(route, request, response)))
        sheddable.refuse(request, response);
    },
  };
}

type Methods = Map<string | undefined, Route>;

/** Literal paths are found at once; others, and targets that are not in their one form, in a slower way. */
function tableOf(routes: readonly Route[]): (request: NodeRequest) => Route | undefined {
  const paths = new Map<string, Methods>();
  for (const route of routes) {
    const methods: Methods = paths.get(route.path) ?? new Map();
    if (methods.has(route.method)) throw new Error(`there are two routes of ${route.method} ${route.path}`);
    paths.set(route.path, methods.set(route.method, route));
  }
  for (const methods of paths.values()) {
    const get = methods.get("GET");
    if (get && !methods.has("HEAD")) methods.set("HEAD", get);
  }
  const templated = [...paths]
    .filter(([path]) => templatedSegments(path) > 0)
    .sort(([a], [b]) => templatedSegments(a) - templatedSegments(b))
    .map(([path, methods]) => ({ fits: templateTest(path), methods }));

  function findSlowly(request: NodeRequest): Methods | undefined {
    normalize(request);
    const path = withoutQuery(request.url ?? "/");
    return paths.get(path) ?? templated.find(({ fits }) => fits(path))?.methods;
  }

  return (request) => {
    const { method = "GET", url = "" } = request;
    const methods = paths.get(url) ?? findSlowly(request);
    // HTTP/2 permits any case.
    return methods && (methods.get(method) ?? methods.get(method.toUpperCase()) ?? methods.get(undefined));
  };
}

/** A name as a host, alone or with a port from 1000 to 59999. Hono's listener parses others, and may refuse them. */
const plainHost = /^[a-z0-9._-]+(?::[1-9]\d{3}|:[1-5]\d{4})?$/;

/** Bytes of a body that may be left to Node to read and discard, if the request is refused before it is read. */
const maxDiscarded = 65_536;

/** Whether a request needs nothing of Hono, whose Fetch objects take a twelfth of the time of a look-up. */
function isPlain({ path }: Route, { url, headers, rawHeaders }: IncomingMessage): boolean {
  const { host = "", "content-length": length } = headers;
  return url === path && Number(length) <= maxDiscarded && plainHost.test(host) && hosts(rawHeaders) === 1;
}

/** How many Host headers a request has. Node keeps the first one, and a proxy may have gone by another. */
export function hosts(rawHeaders: readonly string[]): number {
  let count = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at];
    if (name?.length === 4 && name.toLowerCase() === "host") count += 1;
  }
  return count;
}

/** Milliseconds for which the work for a client that has gone counts as in flight, at most. */
const abandonedMs = 10_000;

/**
 * Admits a request until its response is sent, or its client has gone, and its work is over.
 * @param on the response of HTTP/1, or the stream of HTTP/2 @param responding called before the response is sent
 * @returns false if it is to be refused; otherwise `begin` is called now or soon, and never if its client has gone
 */
export function admit(
  admission: Admission,
  operation: Prioritized,
  on: HttpResponse | ServerHttp2Stream,
  begin: () => Promise<void>,
  responding?: () => void,
): boolean {
  const body = on instanceof HttpResponse ? on.req : on;
  const admitted = admission.enter(operation, {
    isComplete: () => body.readableEnded || ("complete" in body && body.complete),
    onComplete: (received) => body.once("end", () => !on.closed && received()),
  });
  if (!admitted) return false;
  let work: Promise<void> | undefined;
  const leave = () => {
    // A response may be that of a deadline, with the work still going on.
    if (work) void withTimeout(work, abandonedMs, () => undefined).then(() => admission.leave(admitted));
    else admission.leave(admitted);
  };
  onceResponding(on, () => {
    admission.respond(admitted, leave);
    responding?.();
  });
  on.on("close", leave);
  admission.start(admitted, () => {
    work = begin();
    void work.then(() => {
      work = undefined;
    });
  });
  return true;
}
