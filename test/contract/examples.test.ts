/**
 * Every request body has an example that is valid, so that what the reference sends first makes sense; it takes nothing
 * that the documents' tours need, and names the credentials to begin with.
 */
import { globSync, readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { describe, expect, it } from "vitest";
import { developmentClients, developmentInternalClient } from "../../src/auth/client-settings.ts";
import { developmentSecretsFile } from "../../src/development/secrets.ts";
import { contractTexts } from "../../src/platform/openapi/document.ts";

interface Schema {
  readonly $ref?: string;
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, { readonly example?: unknown }>>;
}
interface MediaType {
  readonly schema: Schema;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}
interface Operation {
  readonly operationId: string;
  readonly requestBody?: { readonly content: Readonly<Record<string, MediaType>> };
}
interface Contract {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly securitySchemes?: Readonly<Record<string, { readonly description: string }>>;
  };
}

const methods = ["get", "put", "post", "delete", "patch"];

describe.each(["auth", "push-orchestration", "otp-verifier"])("%s", (name) => {
  const contract: Contract = JSON.parse(contractTexts(name).json);
  const ajv = new Ajv2020({ strict: false, formats: { password: true } });
  addFormats.default(ajv);
  ajv.addSchema(contract, name);
  const bodies = Object.values(contract.paths).flatMap((path) =>
    methods.flatMap((method) => {
      const { operationId = "", requestBody } = path[method] ?? {};
      return Object.entries(requestBody?.content ?? {}).map(([type, media]) => ({
        operationId,
        type,
        media,
      }));
    }),
  );
  const resolve = ({ $ref }: Schema) => `${name}${$ref}`;

  it("has request bodies, whose schemas have names", () => {
    expect(bodies.length).toBeGreaterThan(2);
    for (const { media } of bodies) expect(media.schema.$ref).toMatch(/^#\/components\/schemas\//);
  });

  it.each(bodies)("$operationId, $type: examples that its schema takes", ({ media }) => {
    const examples = Object.values(media.examples ?? {});
    expect(examples.length).toBeGreaterThan(0);
    for (const { value } of examples) {
      ajv.validate(resolve(media.schema), value);
      expect(ajv.errors ?? [], JSON.stringify(value)).toEqual([]);
    }
  });

  const forms = bodies.filter(({ type }) => type === "application/x-www-form-urlencoded");
  // Of a form, the reference fills in what the fields themselves have as an example, and "string" where they have none.
  it.runIf(forms.length > 0).each(forms)("$operationId: each required field of its form", ({ media }) => {
    const schema = contract.components.schemas[media.schema.$ref?.split("/").at(-1) ?? ""] ?? {};
    const filled = Object.entries(schema.properties ?? {}).filter(([, { example }]) => example !== undefined);
    expect(filled.map(([field]) => field)).toEqual(expect.arrayContaining([...(schema.required ?? [])]));
    const value = Object.fromEntries(filled.map(([field, { example }]) => [field, example]));
    expect(ajv.validate(resolve(media.schema), value)).toBe(true);
  });
});

it("the token request of the form can be answered: it has all that its grant needs", () => {
  const contract: Contract = JSON.parse(contractTexts("auth").json);
  const properties = contract.components.schemas["TokenRequest"]?.properties ?? {};
  expect(properties["grant_type"]?.example).toBe("auth");
  const created =
    contract.paths["/v1/identities"]?.["post"]?.requestBody?.content["application/json"]?.examples;
  expect(created?.["full"]?.value).toMatchObject({ id: properties["auth_id"]?.example });
});

it("what the reference creates is left free by the tours, and the other way round", () => {
  const contract: Contract = JSON.parse(contractTexts("auth").json);
  const bodies =
    contract.paths["/v1/identities"]?.["post"]?.requestBody?.content["application/json"]?.examples;
  const values = Object.values(bodies ?? {}).flatMap(({ value }) => Object.values(value ?? {}));
  const taken = values.filter((value) => typeof value === "string");
  expect(taken).toContain("+12025550123");
  const tours = ["README.md", ...globSync("docs/**/*.md")].map((page) => readFileSync(page, "utf8")).join();
  expect(taken.filter((value) => tours.includes(value))).toEqual([]);
});

it("each security scheme names the credentials of development mode", () => {
  const [backend, office, , app] = developmentClients;
  const credentials: Readonly<Record<string, readonly string[]>> = {
    InternalClient: [developmentInternalClient].flatMap(Object.values),
    RegisteredClient: [backend, office].flatMap(({ clientId, clientSecret }) => [clientId, clientSecret]),
    UserToken: [app.clientId],
    PlatformApiKey: ["apiKey", `.data/${developmentSecretsFile}`],
    UserApplication: [app.clientId, backend.clientId, backend.clientSecret],
    BackofficeApplication: [office.clientId, office.clientSecret],
  };
  const schemes = ["auth", "push-orchestration"].flatMap((name) => {
    const contract: Contract = JSON.parse(contractTexts(name).json);
    return Object.entries(contract.components.securitySchemes ?? {});
  });
  expect(schemes.map(([name]) => name)).toEqual(Object.keys(credentials));
  for (const [name, { description }] of schemes)
    for (const credential of credentials[name] ?? []) expect(description).toContain(`\`${credential}\``);
});
