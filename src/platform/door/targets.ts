/** Request targets, of which equal ones are made one (RFC 3986 section 6.2.2), and the paths that routes have. */
import type { NodeRequest } from "./responses.ts";

/** A URL as a target, which names its host: the authority, and the rest. It has neither a user nor a fragment there. */
const absoluteForm = /^https?:\/\/([^/?#@\\]+)((?:[/?#].*)?)$/is;

/**
 * The one form of equal targets: nothing is encoded without need, and an encoded slash stays one.
 * @returns the path with its query and, of a URL, its authority, which replaces Host (RFC 9112 section 3.2.2)
 */
export function normalTarget(target: string) {
  const [, authority, rest = ""] = absoluteForm.exec(target) ?? [];
  const path = authority === undefined ? target : rest.replace(/^(?!\/)/, "/");
  const normal = path.replaceAll(/%[0-9a-f]{2}/gi, (encoded) => {
    const character = String.fromCharCode(Number.parseInt(encoded.slice(1), 16));
    return /[\w.~-]/.test(character) ? character : encoded.toUpperCase();
  });
  return { target: normal, authority };
}

/** Brings the target of a request into its one form, for all that looks at it. */
export function normalize(request: NodeRequest): void {
  const { url = "", headers, httpVersion } = request;
  if (url.startsWith("/") && !url.includes("%")) return;
  const { target, authority } = normalTarget(url);
  request.url = target;
  // A Host has to be there even so, but for HTTP/1.0.
  if (authority !== undefined && (headers.host !== undefined || httpVersion === "1.0"))
    headers.host = authority;
}

export function withoutQuery(target: string): string {
  const query = target.indexOf("?");
  return query < 0 ? target : target.slice(0, query);
}

/** Makes a test of paths, for one with segments of the form `{name}`, which stand for any that is not empty. */
export function templateTest(path: string): (path: string) => boolean {
  const segments = path.split("/").map((segment) => (segment.startsWith("{") ? undefined : segment));
  return (given) => {
    const parts = given.split("/");
    return (
      parts.length === segments.length &&
      segments.every((segment, at) => (segment === undefined ? parts[at] !== "" : parts[at] === segment))
    );
  };
}

/** How many segments of a path stand for any; of two paths, OpenAPI matches first the one that has fewer. */
export function templatedSegments(path: string): number {
  return path.split("{").length - 1;
}
