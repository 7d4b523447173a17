/** The index at `/` and at each base path: the APIs and the paths of their documents, as JSON and as HTML. */

import type { ContractDocument } from "./document.ts";

/** One API in an index; paths of this host. */
export interface ApiLinks {
  readonly name: string;
  readonly path: string;
  readonly docs: string;
  readonly openapiYaml: string;
  readonly openapiJson: string;
  /** The AsyncAPI document of its events; absent with the protos. */
  readonly asyncapi?: string;
  /** Absent where an API is offered over HTTP alone. */
  readonly protos?: ProtoLinks;
}

interface ProtoLinks {
  /** A google.protobuf.FileDescriptorSet of all files and what they import. */
  readonly descriptorSet: string;
  readonly files: readonly string[];
}

/** Where the AsyncAPI document is, below the base path. */
export const asyncapiPath = "asyncapi.json";
export const protosPath = "protos";
/** Where the descriptor set is, below the base path. */
export const descriptorSetPath = `${protosPath}/descriptors.binpb`;

export function linksOf({
  title,
  basePath,
  protos,
}: Pick<ContractDocument, "title" | "basePath" | "protos">): ApiLinks {
  return {
    name: title,
    path: basePath,
    docs: `${basePath}/docs`,
    openapiYaml: `${basePath}/openapi.yaml`,
    openapiJson: `${basePath}/openapi.json`,
    ...(protos && {
      asyncapi: `${basePath}/${asyncapiPath}`,
      protos: {
        descriptorSet: `${basePath}/${descriptorSetPath}`,
        files: [...protos.files.keys()].map((file) => `${basePath}/${protosPath}/${file}`),
      },
    }),
  };
}

/** Whether the Accept header names HTML, as browsers' headers do. */
export function namesHtml(accept: string | undefined): boolean {
  return accept?.toLowerCase().includes("text/html") ?? false;
}

/** The index as a page without scripts. */
export function indexHtml(title: string, apis: readonly ApiLinks[]): string {
  const items = apis.map(({ name, path: basePath, docs, openapiYaml, openapiJson, asyncapi, protos }) => {
    const paths = protos ? [protos.descriptorSet, ...protos.files] : [];
    const links = [
      [docs, "reference"],
      [openapiYaml, "openapi.yaml"],
      [openapiJson, "openapi.json"],
      ...(asyncapi === undefined ? [] : [[asyncapi, asyncapiPath]]),
      ...paths.map((path) => [path, path.slice(`${basePath}/${protosPath}/`.length)]),
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

export function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}
