/** Finds the requests that need nothing of Hono, whose Fetch objects take a twelfth of the time of a look-up. */
import type { IncomingMessage } from "node:http";
import { type CorsPolicy, setCorsHeaders } from "../door/cors-policy.ts";
import type { DirectRoute } from "../door/direct-routes.ts";

/** A name as a host, alone or with a port from 1000 to 59999. Hono's listener parses others, and may refuse them. */
const plainHost = /^[a-z0-9._-]+(?::[1-9]\d{3}|:[1-5]\d{4})?$/;

/** Bytes of a body that may be left to Node to read and discard, if the request is refused before it is read. */
const maxDiscarded = 65_536;

/** Finds the route of a request that need not pass Hono; undefined for all others. */
export type FindDirect = (request: IncomingMessage) => DirectRoute | undefined;

/** @param cors for the responses, which do not pass Hono @throws if two routes have the same method and path */
export function findDirectAmong(routes: readonly DirectRoute[], cors: CorsPolicy): FindDirect {
  const byTarget = new Map<string, Map<string, DirectRoute>>();
  for (const route of routes) {
    const methods = byTarget.get(route.path) ?? new Map<string, DirectRoute>();
    if (methods.has(route.method)) throw new Error(`there are two routes of ${route.method} ${route.path}`);
    byTarget.set(route.path, methods.set(route.method, withCors(route, cors)));
  }
  return ({ url = "", method = "", headers }) => {
    const route = byTarget.get(url)?.get(method);
    if (!route) return undefined;
    const { host = "", "content-length": length } = headers;
    return Number(length) <= maxDiscarded && plainHost.test(host) ? route : undefined;
  };
}

function withCors(route: DirectRoute, cors: CorsPolicy): DirectRoute {
  if (cors.origins.length === 0) return route;
  return {
    ...route,
    async handle(request, response) {
      setCorsHeaders(request, response, cors);
      await route.handle(request, response);
    },
  };
}
