/** What the router remembers is what it would find again, and no more than was registered. */
import { expect, test } from "vitest";
import { CachingRouter } from "../../../src/platform/http/caching-router.ts";

const handlersOf = (router: CachingRouter<string>, method: string, path: string) =>
  router.match(method, path)[0].map(([handler]) => handler);

test("a literal path has the handlers of its method, each time it is looked up", () => {
  const router = new CachingRouter<string>();
  router.add("GET", "/items", "list");
  router.add("POST", "/items", "create");
  router.add("GET", "/items/:id", "get");
  for (let time = 0; time < 2; time += 1) {
    expect(handlersOf(router, "GET", "/items")).toEqual(["list"]);
    expect(handlersOf(router, "POST", "/items")).toEqual(["create"]);
    expect(handlersOf(router, "DELETE", "/items")).toEqual([]);
    expect(handlersOf(router, "GET", "/items/a")).toEqual(["get"]);
    expect(handlersOf(router, "GET", "/else")).toEqual([]);
  }
});

test("a later route also applies to paths that were looked up before", () => {
  const router = new CachingRouter<string>();
  router.add("GET", "/items", "list");
  expect(handlersOf(router, "GET", "/items")).toEqual(["list"]);
  router.add("GET", "*", "all");
  router.add("GET", "/items", "again");
  expect(handlersOf(router, "GET", "/items")).toEqual(["list", "all", "again"]);
});

test("results of registered paths are cached, and those of other paths are not", () => {
  const router = new CachingRouter<string>();
  router.add("GET", "/items", "list");
  router.add("GET", "/items/:id", "get");
  const isRemembered = (method: string, path: string) => {
    const found = router.match(method, path);
    return router.match(method, path) === found;
  };
  expect(isRemembered("GET", "/items")).toBe(true);
  expect(isRemembered("POST", "/items")).toBe(true);
  expect(isRemembered("FANCY", "/items")).toBe(false);
  expect(isRemembered("GET", "/items/a")).toBe(false);
  expect(isRemembered("GET", "/else")).toBe(false);
});
