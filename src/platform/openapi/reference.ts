/**
 * A contract as it is served: the document itself, and a page to read it on. The page is Swagger UI from
 * the project's own dependencies; it loads nothing from another host, and the browser is told so.
 */
import { type Context, Hono } from "hono";
import type { Logger } from "pino";
import { ErrorKinds, ServiceError } from "../base/errors.ts";
import { problem, toResponse } from "../base/problem.ts";
import { RequestContext } from "../base/request-context.ts";
import type { ContractDocument } from "./document.ts";
import { matchesEntityTag } from "./entity-tag.ts";
import { type Page, pagesOf } from "./reference-pages.ts";

const allow = ["GET", "HEAD", "OPTIONS"];

/**
 * Routes for `openapi.json`, `openapi.yaml`, `docs` and what that page needs, below the base path.
 * @param basePath such as /api/orders
 */
export function createApiReference(contract: ContractDocument, basePath: string, logger: Logger): Hono {
  const app = new Hono();
  const contextOf = ({ raw }: Context["req"]) => new RequestContext(logger, raw.headers.get("x-request-id"));

  for (const [path, page] of pagesOf(contract)) {
    const route = `${basePath}/${path}`;
    app.get(route, (c) => answer(c, page(), contextOf(c.req)));
    app.options(route, (c) => {
      const headers = { Allow: allow.join(", "), "X-Request-Id": contextOf(c.req).requestId };
      return new Response(null, { status: 204, headers });
    });
    app.all(route, (c) => refuseMethod(c, contextOf(c.req)));
  }
  // The page's links are relative to its own address.
  app.get(`${basePath}/docs/`, (c) => {
    const headers = { Location: "../docs", "X-Request-Id": contextOf(c.req).requestId };
    return new Response(null, { status: 308, headers });
  });
  return app;
}

function answer(c: Context, { body, etag, version, headers }: Page, { requestId }: RequestContext): Response {
  const isPinned = version !== undefined && c.req.query("v") === version;
  const common = {
    "X-Request-Id": requestId,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": isPinned ? "public, max-age=31536000, immutable" : "public, max-age=300",
    ETag: etag,
  };
  if (matchesEntityTag(c.req.header("if-none-match"), etag)) {
    return new Response(null, { status: 304, headers: common });
  }
  const length = { "Content-Length": String(body.byteLength) };
  return new Response(body, { headers: { ...common, ...headers, ...length } });
}

function refuseMethod(c: Context, context: RequestContext): Response {
  const detail = `${c.req.method} is not a method of this path; it has: ${allow.join(", ")}.`;
  const error = new ServiceError(ErrorKinds.methodNotAllowed, detail, { allow });
  return toResponse(problem(context, error.kind.status, { "X-Request-Id": context.requestId }, error));
}
