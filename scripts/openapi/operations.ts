/**
 * The operations of an OpenAPI document, each with everything that it inherits from its path and its document,
 * under a key that is the same in two versions of the document.
 */
import type { Json, JsonObject } from "./document.ts";
import { arrayOf, entriesOf, objectOf, resolveObject, stringsOf } from "./document.ts";

/** An operation with all that it inherits. */
export interface Operation {
  /** Method and path, for messages. */
  readonly label: string;
  /** The operation object. */
  readonly self: JsonObject;
  /** By place and name, such as `query:page`; a path parameter by its position in the path. */
  readonly parameters: ReadonlyMap<string, JsonObject>;
  /** The alternative sets of credentials; the empty set needs none. */
  readonly security: readonly ReadonlySet<string>[];
  /** URL templates that the path is appended to. */
  readonly servers: readonly string[];
}

const METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/** Headers that OpenAPI describes elsewhere, and ignores as parameters. */
const NOT_PARAMETERS = ["header:accept", "header:content-type", "header:authorization"];

const PATH_PARAMETER = /\{([^}]*)\}/g;

/** The operations, by method and path; names of path parameters are ignored. */
export function operationsOf(root: JsonObject): Map<string, Operation> {
  const operations = new Map<string, Operation>();
  for (const [path, reference] of entriesOf(root["paths"])) {
    const item = resolveObject(root, reference);
    for (const method of METHODS.filter((name) => item[name] !== undefined)) {
      operations.set(
        `${method} ${path.replaceAll(PATH_PARAMETER, "{}")}`,
        operation(root, path, item, method),
      );
    }
  }
  return operations;
}

function operation(root: JsonObject, path: string, item: JsonObject, method: string): Operation {
  const self = objectOf(item[method]);
  const declared = [...arrayOf(item["parameters"]), ...arrayOf(self["parameters"])];
  const security = arrayOf(self["security"] ?? root["security"] ?? []);
  const servers = arrayOf(self["servers"] ?? item["servers"] ?? root["servers"] ?? [{ url: "/" }]);
  return {
    label: `${method.toUpperCase()} ${path}`,
    self,
    parameters: parametersOf(root, path, declared),
    security: (security.length === 0 ? [{}] : security).map((requirement) =>
      credentialsOf(root, requirement),
    ),
    servers: servers.map((server) => String(objectOf(server)["url"])),
  };
}

function parametersOf(root: JsonObject, path: string, declared: readonly Json[]): Map<string, JsonObject> {
  const positions = [...path.matchAll(PATH_PARAMETER)].map(([, name]) => name);
  const parameters = new Map<string, JsonObject>();
  for (const reference of declared) {
    const parameter = resolveObject(root, reference);
    const [place, name] = [String(parameter["in"]), String(parameter["name"])];
    const names = { path: `#${positions.indexOf(name) + 1}`, header: name.toLowerCase() };
    const key = `${place}:${place === "path" || place === "header" ? names[place] : name}`;
    if (!NOT_PARAMETERS.includes(key)) parameters.set(key, parameter);
  }
  return parameters;
}

/** The credentials that a requirement needs, identified by the content of the schemes instead of their names. */
function credentialsOf(root: JsonObject, requirement: Json): Set<string> {
  const schemes = objectOf(objectOf(root["components"])["securitySchemes"]);
  const credentials = entriesOf(requirement).flatMap(([name, scopes]) => {
    const { type, scheme, in: place, name: field, openIdConnectUrl } = resolveObject(root, schemes[name]);
    const kind = [type, scheme, place, field, openIdConnectUrl]
      .filter((part) => part !== undefined)
      .join(" ");
    return [kind, ...stringsOf(scopes).map((scope) => `${kind} scope ${scope}`)];
  });
  return new Set(credentials);
}
