/** The routes of RPC in the table of the door, by which calls come over the port of the HTTP APIs. */
import type { Route, Sheddable } from "../door/door.ts";
import type { RpcHandler, RpcRoute } from "./handler.ts";
import { exchangeOf } from "./http-exchange.ts";

/** @returns a route for each method, of which only calls may be refused, and one for the other paths of each service */
export function doorRoutes({ routes, unknown }: RpcHandler): Route[] {
  const services = new Set(routes.map(({ path }) => path.slice(0, path.lastIndexOf("/"))));
  const others = [...services].map((service) => ({ ...every(unknown), path: `${service}/{method}` }));
  return [...routes.flatMap(routesOf), ...others];
}

function routesOf(route: RpcRoute): Route[] {
  const { sheddable } = route;
  if (!sheddable) return [every(route)];
  const refuse: Sheddable["refuse"] = (request, response) => route.refuse(exchangeOf(request, response));
  return [{ ...every(route), method: "POST", sheddable: { ...sheddable, refuse } }, every(route)];
}

function every(route: RpcRoute): Route {
  return { method: undefined, path: route.path, handle: (...exchange) => route.handle(...exchange) };
}
