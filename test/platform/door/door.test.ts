/** The table of routes: each request has one, or none, by its method and its target in any spelling. */
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { createDoor, type Route } from "../../../src/platform/door/door.ts";
import { createRpcHandler } from "../../../src/platform/rpc/handler.ts";
import { recorder } from "../../support/rpc-servers.ts";
import { testServices } from "../../support/rpc-services.ts";

const routeOf = (path: string, method?: string): Route => ({ method, path });

function matcher(routes: readonly Route[]) {
  const door = createDoor({ routes, serve: async () => undefined, fail: () => undefined });
  return (method: string, url: string) => {
    const request = Object.assign(new IncomingMessage(new Socket()), { method, url });
    return door.match(request);
  };
}

describe("a request", () => {
  const routes = [
    routeOf("/items/{id}", "GET"),
    routeOf("/items/latest", "GET"),
    routeOf("/items", "POST"),
    routeOf("/{kind}/latest", "GET"),
    routeOf("/{kind}/{id}/parts", "GET"),
    routeOf("/rpc"),
    routeOf("/rpc", "POST"),
  ];
  const match = matcher(routes);

  it.each([
    ["POST", "/items", 2],
    ["post", "/items", 2],
    ["POST", "/%69tems?a=b", 2],
    ["POST", "http://a.example/items", 2],
    ["GET", "/items", undefined],
    ["GET", "/items/latest", 1],
    ["HEAD", "/items/latest", 1],
    ["DELETE", "/items/latest", undefined],
    ["GET", "/items/a", 0],
    ["GET", "/items/a%2Fb", 0],
    ["GET", "/items/", undefined],
    ["GET", "/items/a/b", undefined],
    ["GET", "/things/latest", 3],
    ["GET", "/things/a/parts?b", 4],
    ["POST", "/rpc", 6],
    ["PROPFIND", "/rpc", 5],
    ["GET", "", undefined],
  ])("%s %s", (method, target, expected) => {
    expect(match(method, target)).toBe(expected === undefined ? undefined : routes[expected]);
  });
});

describe("a path over RPC", () => {
  const match = matcher(createRpcHandler({ ...testServices(), ...recorder() }).routes);
  it.each([
    ["/auth.v1.IntrospectionService/Introspect", true],
    ["/auth.v1.IntrospectionService/Introspect?encoding=json", true],
    ["/auth.v1.IntrospectionService/Nope", true],
    ["/auth.v1.IntrospectionService", false],
    ["/auth.v1.IntrospectionService/Introspect/more", false],
    ["/api/auth/v1/identities", false],
    ["/", false],
  ])("%s: %s", (target, expected) => {
    for (const method of ["POST", "GET", "OPTIONS"])
      expect(match(method, target)?.handle !== undefined).toBe(expected);
  });
});

it("has at most one route of each method and path", () => {
  expect(() => matcher([routeOf("/a", "POST"), routeOf("/a", "POST")])).toThrow("two routes of POST /a");
});
