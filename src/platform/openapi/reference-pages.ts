/** The pages of a contract: its document, the API reference that shows it, and the files of the reference. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { ContractDocument } from "./document.ts";
import { entityTag } from "./entity-tag.ts";
import {
  type ApiLinks,
  asyncapiPath,
  descriptorSetPath,
  escapeHtml,
  indexHtml,
  linksOf,
  namesHtml,
  protosPath,
} from "./service-index.ts";

/** A page, without the headers that every response has. */
export interface Page {
  readonly body: Uint8Array<ArrayBuffer>;
  readonly etag: string;
  readonly headers: Readonly<Record<string, string>>;
}

interface PageRequest {
  /** The origin that the client used, such as https://api.example.com; undefined if its host is not plain. */
  readonly origin: string | undefined;
  readonly accept: string | undefined;
}

export type MakePage = (request: PageRequest) => Page;

/** Allows only resources of this server. Swagger UI's script sets styles, and its style sheet contains icons. */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** Runs in the browser: "Try it out" asks the server of the page, without cookies. Deep links lose path parameters. */
const initialiser = `"use strict";
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  displayRequestDuration: true,
  validatorUrl: null,
  requestInterceptor(request) {
    const { pathname, search } = new URL(request.url, location.href);
    request.url = location.origin + pathname + search;
    if (!request.loadSpec) request.credentials = "omit";
    return request;
  },
});
`;

const scriptType = "text/javascript; charset=utf-8";
const jsonType = "application/json";
const textType = "text/plain; charset=utf-8";
/** The media type of AsyncAPI documents, from the AsyncAPI specification. */
const asyncapiType = "application/vnd.aai.asyncapi+json;version=3.0.0";
/** Registered with the IANA; a descriptor set is a message like any other. */
const protobufType = "application/protobuf";
const pageHeaders = {
  "Content-Type": "text/html; charset=utf-8",
  "Content-Security-Policy": contentSecurityPolicy,
  "Referrer-Policy": "no-referrer",
};

/** The files of Swagger UI that the page needs, in memory once for all contracts. */
const assets = [
  asset("swagger-ui.css", "text/css; charset=utf-8"),
  asset("swagger-ui-bundle.js", scriptType),
  asset("favicon-32x32.png", "image/png"),
];

function asset(file: string, contentType: string): readonly [string, () => Page] {
  const read = () => readFileSync(createRequire(import.meta.url).resolve(`swagger-ui-dist/${file}`));
  return [`docs/assets/${file}`, once(() => toPage(read(), { "Content-Type": contentType }))];
}

/** The pages of a contract, by their path below the base path; "" is the index. */
export function pagesOf(contract: ContractDocument): ReadonlyMap<string, MakePage> {
  const text = (headers: Page["headers"], make: () => string) =>
    once(() => toPage(Buffer.from(make()), headers));
  return new Map<string, MakePage>([
    ["", indexPage(contract.title, linksOf(contract))],
    [
      "openapi.json",
      documentPage(
        jsonType,
        contract,
        once(() => JSON.stringify(contract.json)),
        (url) => `"url":"${url}"`,
      ),
    ],
    [
      "openapi.yaml",
      documentPage(
        "application/yaml",
        contract,
        () => contract.yaml,
        (url) => `url: ${url}\n`,
      ),
    ],
    ...protoPages(contract),
    ["docs", text(pageHeaders, () => htmlOf(contract.title))],
    ["docs/assets/initialiser.js", text({ "Content-Type": scriptType }, () => initialiser)],
    ...assets,
  ]);
}

/** The protos as they are written, by the path that they import each other by, their descriptor set, and the events. */
function protoPages({ protos }: ContractDocument): [string, MakePage][] {
  if (!protos) return [];
  const files = [...protos.files].map(([file, text]): [string, MakePage] => {
    const page = once(() => toPage(Buffer.from(text), { "Content-Type": textType }));
    return [`${protosPath}/${file}`, page];
  });
  const set = once(() => toPage(Buffer.from(protos.descriptorSet), { "Content-Type": protobufType }));
  const events = once(() => toPage(Buffer.from(protos.asyncapi), { "Content-Type": asyncapiType }));
  return [...files, [descriptorSetPath, set], [asyncapiPath, events]];
}

/** The index of one API, or of all: HTML if the Accept header names it, else JSON. */
export function indexPage(
  title: string,
  apis: ApiLinks | { readonly services: readonly ApiLinks[] },
): MakePage {
  const varying = { Vary: "Accept, Origin" };
  const list = "services" in apis ? apis.services : [apis];
  const html = toPage(Buffer.from(indexHtml(title, list)), { ...pageHeaders, ...varying });
  const json = toPage(Buffer.from(JSON.stringify(apis)), { "Content-Type": jsonType, ...varying });
  return ({ accept }) => (namesHtml(accept) ? html : json);
}

/**
 * A document whose server is the one that the client has asked; made for each request, as clients invent names.
 * @param spelled writes the server's URL as the text has it
 */
function documentPage(
  contentType: string,
  { serverUrl, basePath }: ContractDocument,
  text: () => string,
  spelled: (url: string) => string,
): MakePage {
  return ({ origin }) => {
    const url = origin === undefined ? serverUrl : `${origin}${basePath}`;
    const served = text().replace(spelled(serverUrl), () => spelled(url));
    const varying = { Vary: "Host, X-Forwarded-Proto, Origin" };
    return toPage(Buffer.from(served), { "Content-Type": contentType, ...varying });
  };
}

function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

function toPage(bytes: Buffer<ArrayBuffer>, headers: Page["headers"]): Page {
  return { body: bytes, etag: entityTag(bytes), headers };
}

function htmlOf(title: string): string {
  const name = escapeHtml(title);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${name}: API reference</title>
<link rel="icon" type="image/png" href="docs/assets/favicon-32x32.png">
<link rel="stylesheet" href="docs/assets/swagger-ui.css">
</head>
<body>
<main id="reference"></main>
<noscript>This page needs JavaScript. The same document without it: <a href="openapi.yaml">openapi.yaml</a>.</noscript>
<script src="docs/assets/swagger-ui-bundle.js"></script>
<script src="docs/assets/initialiser.js"></script>
</body>
</html>
`;
}
