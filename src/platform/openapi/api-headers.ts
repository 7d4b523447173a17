import type { ApiHeaders } from "../door/cors-policy.ts";
import type { ContractDocument } from "./document.ts";

/** The headers that the operations of a document declare: their parameters, keys, and responses. */
export function apiHeaders({ operations }: Pick<ContractDocument, "operations">): ApiHeaders {
  const inHeader = (part: { readonly in?: string; readonly name?: string }) =>
    part.in === "header" && part.name !== undefined ? [part.name] : [];
  const ofRequests = operations.flatMap(({ parameters, schemes }) =>
    [...parameters, ...schemes].flatMap(inHeader),
  );
  const ofResponses = operations.flatMap(({ responses }) =>
    Object.values(responses).flatMap(({ headers = {} }) => Object.keys(headers)),
  );
  return { requestHeaders: [...new Set(ofRequests)], responseHeaders: [...new Set(ofResponses)] };
}
