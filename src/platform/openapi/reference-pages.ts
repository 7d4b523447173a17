/** What there is to serve of a contract: its document, the page that shows it, and the files of that page. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import swaggerUi from "swagger-ui-dist/package.json" with { type: "json" };
import type { ContractDocument } from "./document.ts";
import { entityTag } from "./entity-tag.ts";

/** What is sent, but for the headers of every answer. */
export interface Page {
  readonly body: Uint8Array<ArrayBuffer>;
  readonly etag: string;
  /** A request that names it in the query (`v`) is for these bytes and no others, for ever. */
  readonly version: string | undefined;
  /** Of a 200. */
  readonly headers: Readonly<Record<string, string>>;
}

/** Only what this server serves; styles are set by script, and icons are in the style sheet. */
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

/** Runs in the browser. What is tried out goes to the server that the page came from, whatever its address is. */
const initialiser = `"use strict";
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  displayRequestDuration: true,
  validatorUrl: null,
  requestInterceptor(request) {
    const { pathname, search } = new URL(request.url, location.href);
    request.url = location.origin + pathname + search;
    return request;
  },
});
`;
const initialiserVersion = entityTag(initialiser).slice(1, -1);

const scriptType = "text/javascript; charset=utf-8";
const pageHeaders = {
  "Content-Type": "text/html; charset=utf-8",
  "Content-Security-Policy": contentSecurityPolicy,
  "Referrer-Policy": "no-referrer",
};

/** Of all the files of Swagger UI, those that the page needs; in memory once, whatever contracts there are. */
const assets = [
  asset("swagger-ui.css", "text/css; charset=utf-8"),
  asset("swagger-ui-bundle.js", scriptType),
  asset("favicon-32x32.png", "image/png"),
];

function asset(file: string, contentType: string): readonly [string, () => Page] {
  const read = () => readFileSync(createRequire(import.meta.url).resolve(`swagger-ui-dist/${file}`));
  return [
    `docs/assets/${file}`,
    once(() => toPage(read(), { "Content-Type": contentType }, swaggerUi.version)),
  ];
}

/** The pages of a contract, by path; each is made at first use. */
export function pagesOf(contract: ContractDocument): ReadonlyMap<string, () => Page> {
  const text = (headers: Page["headers"], make: () => string, version?: string) =>
    once(() => toPage(Buffer.from(make()), headers, version));
  return new Map([
    ["openapi.json", text({ "Content-Type": "application/json" }, () => JSON.stringify(contract.json))],
    ["openapi.yaml", text({ "Content-Type": "application/yaml" }, () => contract.yaml)],
    ["docs", text(pageHeaders, () => htmlOf(contract.title))],
    [
      "docs/assets/initialiser.js",
      text({ "Content-Type": scriptType }, () => initialiser, initialiserVersion),
    ],
    ...assets,
  ]);
}

function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => {
    made ??= { value: make() };
    return made.value;
  };
}

function toPage(bytes: Buffer<ArrayBuffer>, headers: Page["headers"], version?: string): Page {
  return { body: bytes, etag: entityTag(bytes), version, headers };
}

function htmlOf(title: string): string {
  const name = title.replaceAll(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
  const address = (file: string, version = swaggerUi.version) => `docs/assets/${file}?v=${version}`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${name}: API reference</title>
<link rel="icon" type="image/png" href="${address("favicon-32x32.png")}">
<link rel="stylesheet" href="${address("swagger-ui.css")}">
</head>
<body>
<main id="reference"></main>
<noscript>This page needs JavaScript. The same document without it: <a href="openapi.yaml">openapi.yaml</a>.</noscript>
<script src="${address("swagger-ui-bundle.js")}"></script>
<script src="${address("initialiser.js", initialiserVersion)}"></script>
</body>
</html>
`;
}
