/**
 * Rules that every document keeps, so that generators of many languages make working clients of it, and parsers
 * and linters of many kinds read it. Each is also seen to find a document that breaks it.
 * What parsers of YAML 1.1 need is in yaml-versions.test.ts.
 */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type Document, parseDocument } from "yaml";
import {
  arrayOf,
  entriesOf,
  type Json,
  type JsonObject,
  objectOf,
  resolveObject,
} from "../../scripts/openapi/document.ts";
import {
  closureOf,
  type OpenapiDocument,
  openapiDocument,
  openapiDocuments,
  type PlacedSchema,
  schemasIn,
} from "../support/openapi-documents.ts";

interface Rule {
  /** What a document does. */
  readonly rule: string;
  /** Who fails where one does not. */
  readonly why: string;
  /** The places that break the rule. */
  broken(document: OpenapiDocument): readonly (Json | undefined)[];
  /** Changes of the auth service's document, each of which breaks it: a path, and what is put there. */
  readonly breaking: readonly (readonly [path: string, value: unknown])[];
}

/** The form in which two names meet: generators change case and leave separators out. */
const bare = (name: string) => name.toLowerCase().replaceAll(/[^a-z0-9]/g, "");

/** Names that meet another one, each with its owner. */
function meetings(names: readonly (readonly [name: string, owner: string])[]): string[] {
  const groups = Map.groupBy(names, ([name]) => bare(name));
  return [...groups.values()]
    .filter((group) => group.length > 1)
    .map((group) => group.map(([name, owner]) => `${owner} ${name}`).join(", "));
}

/** Every object of a document, with the key that it stands under. */
function objectsOf(value: Json | undefined, key = ""): [string, JsonObject][] {
  if (Array.isArray(value)) return value.flatMap((each) => objectsOf(each, key));
  const own: [string, JsonObject][] =
    typeof value === "object" && value !== null ? [[key, objectOf(value)]] : [];
  return [...own, ...entriesOf(value).flatMap(([name, each]) => objectsOf(each, name))];
}

const under = (root: JsonObject, wanted: string) =>
  objectsOf(root).flatMap(([key, value]) => (key === wanted ? [value] : []));

/** Conditions describe values that are described elsewhere; generators make no types of them. */
const isCondition = ({ at }: PlacedSchema) => /(?<!\/properties)\/(?:if|then|else|not)(?:\/|$)/.test(at);

const places = (schemas: readonly PlacedSchema[]) => schemas.map(({ at }) => at);

const componentNames = (root: JsonObject) =>
  entriesOf(root["components"]).flatMap(([kind, table]) =>
    entriesOf(table).map(([name]) => [name, kind] as const),
  );

const operationsIn = (root: JsonObject) => entriesOf(root["paths"]).flatMap(([, item]) => entriesOf(item));

const operationIds = (root: JsonObject) =>
  operationsIn(root)
    .map(([, each]) => objectOf(each)["operationId"])
    .filter((id) => typeof id === "string");

/** The schemas of everything that a document says of responses, and of all that they refer to. */
function sent({ name, root }: OpenapiDocument): PlacedSchema[] {
  const schemas = under(root, "responses").flatMap((table) => schemasIn(`${name}#…/responses`, table));
  return closureOf(root, schemas);
}

/** The schemas of JSON bodies of requests, and of all that they refer to. */
function received({ name, root }: OpenapiDocument): PlacedSchema[] {
  const bodies = operationsIn(root).map(([, each]) => objectOf(objectOf(each)["requestBody"])["content"]);
  const json = bodies.flatMap((content) => schemasIn(name, objectOf(objectOf(content)["application/json"])));
  return closureOf(root, json).filter((schema) => !isCondition(schema));
}

/** Names that a library or a language has already, or that say too little beside other packages. */
const general =
  /^(new.*|token|page|size|sort|error|code|key|keys|message|messages|date|datetime|time|type|status|result|request|response|object|list|map|set|client|server|progress)$/i;

/** What a schema allows beside null. */
const beside = (union: Json | undefined) =>
  arrayOf(union).filter((one) => one !== "null" && objectOf(one)["type"] !== "null");

const mayBeNull = (root: JsonObject, schema: Json) => {
  const { type, anyOf } = resolveObject(root, schema);
  return [type].flat().includes("null") || beside(anyOf).length < arrayOf(anyOf).length;
};

const identity = "components/schemas/Identity/properties";
const introspection = "components/schemas/Introspection/properties";
const tokens = "paths/~oauth2~v1~tokens/post";
const text = { type: "string", description: "A text." };

/** Every parameter that need not be sent, and its schema. */
const optionalParameters = (root: JsonObject) =>
  objectsOf(root)
    .filter(([, each]) => "in" in each && "schema" in each && each["required"] !== true)
    .map(([, each]) => [each, resolveObject(root, each["schema"] ?? {})]);

const rules: readonly Rule[] = [
  {
    rule: "gives no two components one name, of whatever kinds they are",
    why: "oapi-codegen makes a type of each: a parameter named like a schema is declared twice.",
    broken: ({ root }) => meetings(componentNames(root)),
    breaking: [["components/parameters/identity_id", { name: "id", in: "query", schema: text }]],
  },
  {
    rule: "names no component as generators name the parts of an operation",
    why: "oapi-codegen and openapi-generator declare such a type twice.",
    broken({ root }) {
      const parts = ["", "Params", "Parameters", "Request", "RequestBody", "JSONBody", "Response", "Result"];
      const taken = new Set(operationIds(root).flatMap((id) => parts.map((part) => bare(`${id}${part}`))));
      return componentNames(root).flatMap(([name]) => (taken.has(bare(name)) ? [name] : []));
    },
    breaking: [["components/schemas/CreateIdentityRequest", text]],
  },
  {
    rule: "gives no schema a general name, nor that of a constructor",
    why: "In Go NewIdentity is the constructor of Identity; Token and Page hide what libraries import.",
    broken: ({ root }) =>
      componentNames(root).flatMap(([name, kind]) =>
        kind === "schemas" && general.test(name) ? [name] : [],
      ),
    breaking: [
      ["components/schemas/NewIdentity", text],
      ["components/schemas/Page", text],
    ],
  },
  {
    rule: "has no two members of an object that differ in case or separators alone",
    why: "Both are one identifier in most languages: builds break, or one overwrites the other.",
    broken: ({ schemas }) =>
      schemas.flatMap(({ at, schema }) =>
        meetings(Object.keys(objectOf(schema["properties"])).map((name) => [name, at] as const)),
      ),
    breaking: [[`${introspection}/client_id`, text]],
  },
  {
    rule: "names every object with members and every list of values",
    why: "Else generators invent names, such as KeySetKeysInner; openapi-generator's Java does not compile.",
    broken: ({ schemas }) =>
      places(
        schemas.filter(
          (each) =>
            !isCondition(each) &&
            !/#\/components\/schemas\/[^/]+$/.test(each.at) &&
            ("properties" in each.schema || "enum" in each.schema),
        ),
      ),
    breaking: [
      [`${identity}/address`, { type: "object", properties: { street: text } }],
      [`${identity}/colours`, { type: "array", items: { type: "string", enum: ["red", "blue"] } }],
    ],
  },
  {
    rule: "has no unions but with null",
    why: "Clients in Kotlin, Python and Go (openapi-generator) fail at run time; oas3-gen and clientele too.",
    broken: ({ schemas }) =>
      schemas.flatMap(({ at, schema: { oneOf, anyOf, allOf, type } }) =>
        [oneOf, anyOf, allOf, type].some((union) => beside(union).length > 1) ? [at] : [],
      ),
    breaking: [
      [`${identity}/email`, { oneOf: [text, { type: "integer" }] }],
      [`${identity}/email`, { type: ["string", "integer"] }],
    ],
  },
  {
    rule: "has no boolean constants",
    why: "They are enums of booleans to openapi-generator, which Kotlin, Python and Go cannot read.",
    broken: ({ schemas }) =>
      places(
        schemas.filter(
          (each) =>
            !isCondition(each) &&
            [each.schema["const"], ...arrayOf(each.schema["enum"])].some((one) => typeof one === "boolean"),
        ),
      ),
    breaking: [[`${introspection}/active`, { type: "boolean", const: true }]],
  },
  {
    rule: "has patterns that linear-time engines know",
    why: "RE2 and Rust's regex have no look-around, back references or repetitions above 1000; kin-openapi refuses.",
    broken: ({ schemas }) =>
      schemas.flatMap(({ at, schema: { pattern, patternProperties } }) =>
        [pattern ?? "", ...Object.keys(objectOf(patternProperties))]
          .filter((each) =>
            /\(\?<?[=!]|\\[1-9]|\\[kucZ]|\{(?:\d+,)?(?:[1-9]\d{3,}|100[1-9])\}/.test(String(each)),
          )
          .map(() => at),
      ),
    breaking: ["^(?!a)b", "^(?<=a)b", "^(a)\\1$", "^a{1,4096}$"].map(
      (pattern) => ["components/schemas/IdentityId/pattern", pattern] as const,
    ),
  },
  {
    rule: "states a pattern or a format of a text, never both",
    why: "pydantic holds what has a format as another type, on which a pattern fails.",
    broken: ({ schemas }) =>
      places(schemas.filter(({ schema }) => "pattern" in schema && "format" in schema)),
    breaking: [
      ["components/schemas/Phone/format", "uuid"],
      ["components/schemas/IdentityId/format", "date-time"],
    ],
  },
  {
    rule: "has no format of passwords",
    why: "pydantic's SecretStr is ********** as JSON, which would be set as the password.",
    broken: ({ schemas }) => places(schemas.filter(({ schema }) => schema["format"] === "password")),
    breaking: [["components/schemas/IdentityPassword/properties/password/format", "password"]],
  },
  {
    rule: "says of integers in responses how large they get",
    why: "Without int64, times and counts are 32 bits in Java, Kotlin, Go and Rust.",
    broken: (document) =>
      places(
        sent(document).filter(
          ({ schema: { type, format, maximum } }) =>
            [type].flat().includes("integer") && format !== "int64" && !(Number(maximum) < 2 ** 31),
        ),
      ),
    breaking: [[`${introspection}/exp`, { type: "integer" }]],
  },
  {
    rule: "has open responses",
    why: "Clients of pydantic and serde refuse a member that is added later.",
    broken: (document) =>
      places(
        sent(document).filter(
          ({ schema }) => schema["additionalProperties"] === false || "unevaluatedProperties" in schema,
        ),
      ),
    breaking: [["components/schemas/Identity/additionalProperties", false]],
  },
  {
    rule: "has closed JSON bodies of requests",
    why: "A misspelled member would be lost in silence.",
    broken: (document) =>
      places(
        received(document).filter(
          ({ schema }) => "properties" in schema && schema["additionalProperties"] !== false,
        ),
      ),
    breaking: [["components/schemas/IdentityCreation/additionalProperties", true]],
  },
  {
    rule: "takes null for each member of a request that may be absent, or says why not",
    why: "pydantic's model_dump() and others send null for what is not set.",
    broken: (document) =>
      received(document).flatMap(({ at, schema: { properties, required } }) =>
        entriesOf(properties)
          .filter(([name]) => !arrayOf(required).includes(name))
          .filter(([, each]) => !mayBeNull(document.root, each))
          .filter(([, each]) => !/\bnull\b/i.test(String(objectOf(each)["description"])))
          .map(([name]) => `${at}/${name}`),
      ),
    breaking: [["components/schemas/IdentityCreation/properties/nickname", text]],
  },
  {
    rule: "names one server, at a plain address, for all of its paths",
    why: "Variables stay literal in clientele and make oas3-gen fail; servers of a path are ignored by all.",
    broken({ root }) {
      const servers = objectsOf(root).flatMap(([, { servers: some }]) => arrayOf(some));
      const urls = servers.map((server) => String(objectOf(server)["url"]));
      return urls.length === 1 ? urls.filter((url) => !/^http:\/\/[^{}]+$/.test(url)) : urls;
    },
    breaking: [
      ["servers/0/url", "{base_url}/api/auth"],
      ["paths/~v1~jwks/servers", [{ url: "http://127.0.0.1:8080" }]],
    ],
  },
  {
    rule: "has bodies of links that are texts",
    why: "openapi-generator and swagger-request-validator refuse the whole document for an object.",
    broken: ({ root }) =>
      under(root, "links")
        .flatMap(entriesOf)
        .map(([, link]) => objectOf(link)["requestBody"] ?? "")
        .filter((body) => typeof body !== "string"),
    breaking: [
      [`${tokens}/responses/200/links/revoke/requestBody`, { token: "$response.body#/access_token" }],
    ],
  },
  {
    rule: "lists one media type for each body",
    why: "openapi-generator and openapi-python-client see two, and label one as the other.",
    broken: ({ root }) => [
      ...under(root, "content")
        .map((content) => Object.keys(content))
        .filter((types) => types.every((type) => type.includes("/")) && types.length !== 1)
        .map(String),
      ...objectsOf(root)
        .flatMap(([, { "x-also-accepts": more }]) => arrayOf(more))
        .filter((type) => !/^[a-z]+\/[a-z0-9.+-]+$/.test(String(type))),
    ],
    breaking: [
      [`${tokens}/requestBody/content/application~json`, { schema: text }],
      [`${tokens}/requestBody/x-also-accepts`, ["json"]],
    ],
  },
  {
    rule: "fills in no parameter that need not be sent",
    why: "Swagger UI and Postman send each example: one idempotency key or request id for all calls.",
    broken: ({ root }) =>
      optionalParameters(root)
        .filter((both) => both.some((each) => "example" in each || "examples" in each))
        .map(([parameter]) => parameter?.["name"]),
    breaking: [
      ["components/parameters/RequestId/example", "a"],
      ["components/parameters/RequestId/schema/examples", ["a"]],
    ],
  },
  {
    rule: "gives no two operations names that differ in a plural alone",
    why: "Who completes the wrong one calls it.",
    broken: ({ root }) => meetings(operationIds(root).map((id) => [id.replaceAll(/s(?=[A-Z]|$)/g, ""), id])),
    breaking: [[`${tokens}/operationId`, "revokeTokens"]],
  },
];

/** The auth service's document with a change. */
function changed(path: string, value: unknown): OpenapiDocument {
  const document: Document = parseDocument(readFileSync("openapi/auth.yaml", "utf8"));
  const steps = path.split("/").map((step) => step.replace(/^~/, "/").replaceAll("~", "/"));
  document.setIn(steps, document.createNode(value));
  return openapiDocument("auth", objectOf(document.toJS()));
}

describe.each(openapiDocuments)("$name", (document) => {
  it.each(rules)("$rule", ({ broken, why }) => {
    expect(broken(document), why).toEqual([]);
  });
});

describe.each(rules)("a document is found that does not keep: $rule", ({ broken, breaking }) => {
  it.each(breaking)("%s", (path, value) => {
    expect(broken(changed(path, value))).not.toEqual([]);
  });
});

/** Components of one name in both that differ. A contract that others implement is its own. */
function differing(auth: OpenapiDocument | undefined, push: OpenapiDocument | undefined) {
  const [ours, theirs] = [objectOf(auth?.root["components"]), objectOf(push?.root["components"])];
  const shared = ["schemas", "parameters", "headers"].flatMap((kind) =>
    Object.keys(objectOf(ours[kind]))
      .filter((name) => name in objectOf(theirs[kind]))
      .map((name) => ({ name, pair: [objectOf(ours[kind])[name], objectOf(theirs[kind])[name]] })),
  );
  return {
    shared: shared.map(({ name }) => name),
    names: shared
      .filter(({ pair: [a, b] }) => JSON.stringify(a) !== JSON.stringify(b))
      .map(({ name }) => name),
  };
}

describe("what the documents of both services have under one name", () => {
  const push = openapiDocuments.find(({ name }) => name === "push-orchestration");

  it("is the same: a client of both has one type of each", () => {
    const auth = openapiDocuments.find(({ name }) => name === "auth");
    const { shared, names } = differing(auth, push);
    expect(shared).toEqual(
      expect.arrayContaining(["Problem", "ProblemCode", "ProblemError", "RequestId", "TraceParent"]),
    );
    expect(names).toEqual([]);
  });

  it("is found where it differs", () => {
    expect(differing(changed("components/schemas/Problem/required", ["type"]), push).names).toEqual([
      "Problem",
    ]);
  });
});
