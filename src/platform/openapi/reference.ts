/** Serves a contract: the document, and Swagger UI, which loads nothing from another host (Content-Security-Policy). */
import { type Context, Hono } from "hono";
import type { Logger } from "pino";
import { RequestContext } from "../base/request-context.ts";
import { problem, toResponse } from "../door/responses.ts";
import { optionsOf, wrongMethod } from "./bind.ts";
import type { ContractDocument } from "./document.ts";
import { matchesEntityTag } from "./entity-tag.ts";
import { indexPage, type MakePage, type Page, pagesOf } from "./reference-pages.ts";
import { linksOf } from "./service-index.ts";

const allow = ["GET", "HEAD", "OPTIONS"];

/** Routes below the base path: an index, `openapi.json`, `openapi.yaml`, the protos, `docs` and its files. */
export function createApiReference(contract: ContractDocument, logger: Logger): Hono {
  const app = new Hono();
  const { basePath } = contract;
  for (const [path, makePage] of pagesOf(contract)) {
    addPage(app, path === "" ? basePath : `${basePath}/${path}`, makePage, logger);
  }
  // The links of a page are relative to its own address.
  for (const path of [basePath, `${basePath}/docs`]) {
    app.get(`${path}/`, (c) => {
      const { requestId } = contextOf(logger, c);
      const headers = { Location: `..${path.slice(path.lastIndexOf("/"))}`, "X-Request-Id": requestId };
      return new Response(null, { status: 308, headers });
    });
  }
  return app;
}

/** The route `/`: an index of these APIs, which is part of no contract. @param name of the program */
export function createIndex(
  name: string,
  apis: readonly { readonly document: ContractDocument }[],
  logger: Logger,
): Hono {
  const services = apis.map(({ document }) => linksOf(document));
  return addPage(new Hono(), "/", indexPage(name, { services }), logger);
}

function contextOf(logger: Logger, c: Context): RequestContext {
  return new RequestContext(logger, c.req.raw.headers.get("x-request-id"));
}

function addPage(app: Hono, route: string, makePage: MakePage, logger: Logger): Hono {
  app.get(route, (c) => {
    const page = makePage({ origin: originOf(c), accept: c.req.header("accept") });
    return pageResponse(c, page, contextOf(logger, c));
  });
  app.options(route, (c) => optionsOf(contextOf(logger, c), allow));
  app.all(route, (c) => {
    const context = contextOf(logger, c);
    return toResponse(problem(context, 405, { "X-Request-Id": context.requestId }, wrongMethod(c, allow)));
  });
  return app;
}

/** A host name or an address, and a port, without any character that has a meaning in a document or a page. */
const plainHost = /^([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d{1,5})?$/;

/** The origin that the client used. The client controls it, so it is shown to this client only. */
function originOf(c: Context): string | undefined {
  const url = new URL(c.req.url);
  // Of a request whose target has a host of its own, caches go by the header.
  const host = c.req.header("host")?.toLowerCase() ?? url.host;
  if (!plainHost.test(host)) return undefined;
  // A proxy that terminates TLS sets the header.
  const scheme = c.req.header("x-forwarded-proto") === "https" ? "https:" : url.protocol;
  return `${scheme}//${host}`;
}

function pageResponse(c: Context, { body, etag, headers }: Page, { requestId }: RequestContext): Response {
  // What shows the client's own origin is for no other client.
  const scope = headers["Vary"]?.includes("Host") ? "private" : "public";
  const common = {
    "X-Request-Id": requestId,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": `${scope}, max-age=300`,
    ETag: etag,
  };
  if (matchesEntityTag(c.req.header("if-none-match"), etag)) {
    const vary = headers["Vary"];
    return new Response(null, { status: 304, headers: { ...common, ...(vary && { Vary: vary }) } });
  }
  const length = { "Content-Length": String(body.byteLength) };
  return new Response(body, { headers: { ...common, ...headers, ...length } });
}
