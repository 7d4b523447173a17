/** The index at `/` and at each base path: the APIs and the paths of their documents, as JSON and as HTML. */

import type { ContractDocument } from "./document.ts";

/** One API in an index; paths of this host. */
export interface ApiLinks {
  readonly name: string;
  readonly path: string;
  readonly docs: string;
  readonly openapiYaml: string;
  readonly openapiJson: string;
}

export function linksOf({ title, basePath }: Pick<ContractDocument, "title" | "basePath">): ApiLinks {
  return {
    name: title,
    path: basePath,
    docs: `${basePath}/docs`,
    openapiYaml: `${basePath}/openapi.yaml`,
    openapiJson: `${basePath}/openapi.json`,
  };
}

/** Whether the Accept header names HTML, as browsers' headers do. */
export function namesHtml(accept: string | undefined): boolean {
  return accept?.toLowerCase().includes("text/html") ?? false;
}

/** The index as a page without scripts. */
export function indexHtml(title: string, apis: readonly ApiLinks[]): string {
  const items = apis.map(({ name, docs, openapiYaml, openapiJson }) => {
    const links = [
      [docs, "reference"],
      [openapiYaml, "openapi.yaml"],
      [openapiJson, "openapi.json"],
    ].map(([path = "", text = ""]) => `<a href="${escapeHtml(path)}">${text}</a>`);
    return `<li>${escapeHtml(name)}: ${links.join(", ")}</li>`;
  });
  return `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>${escapeHtml(title)}</title></head>
<body>
<h1>${escapeHtml(title)}</h1>
<ul>
${items.join("\n")}
</ul>
</body>
</html>
`;
}

/** Escapes a text for HTML. */
export function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}
