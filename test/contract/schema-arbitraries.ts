/** Values made from the schemas of an OpenAPI document: those that a schema allows, and those that it does not. */
import { readFileSync } from "node:fs";
import { Ajv2020, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import fc from "fast-check";
import { parse } from "yaml";

/** What is read of a schema. */
export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean;
  readonly minProperties?: number;
  readonly pattern?: string;
  readonly format?: string;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly multipleOf?: number;
  readonly then?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly uniqueItems?: boolean;
}

export interface Parameter {
  readonly $ref?: string;
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly schema: Schema;
}

/** What is read of an operation. */
export interface Described {
  readonly id: string;
  /** Schemes of its first alternative; empty: public. */
  readonly security: readonly string[];
  readonly parameters: readonly Parameter[];
  /** Schemas by media type, those of `x-also-accepts` included; empty: no body. */
  readonly bodies: Readonly<Record<string, Schema>>;
  readonly bodyRequired: boolean;
}

interface OperationObject {
  operationId: string;
  security?: Record<string, unknown>[];
  parameters?: Parameter[];
  requestBody?: {
    required?: boolean;
    content: Record<string, { schema: Schema }>;
    "x-also-accepts"?: string[];
  };
}

type Values = fc.Arbitrary<unknown>;

/** JSON values that fit into metadata and into unknown parameters. */
const anyJson: Values = fc.jsonValue({ maxDepth: 3, depthSize: "small" }).filter(isStorable);
/** Text that a database can hold. */
const anyText = (minLength: number, maxLength: number) =>
  fc
    .string({ minLength, maxLength: Math.min(maxLength, minLength + 60), unit: "grapheme" })
    .filter(isStorable);

/** NUL and halves of surrogate pairs are refused wherever they stand, by another rule than the schema's. */
function isStorable(value: unknown): boolean {
  return !/\\u0000|\\ud[89a-f]/i.test(JSON.stringify(value));
}

/** Date-times of four-digit years, most of them in UTC. */
const moments = fc
  .tuple(
    fc.date({ min: new Date("0001-01-02"), max: new Date("9999-12-30"), noInvalidDate: true }),
    fc.constantFrom("Z", "Z", "+00:00", "-03:30", "+14:00"),
  )
  .map(([date, zone]) => date.toISOString().replace("Z", zone));

/** The generator knows no negative look-ahead; what it forbids is filtered out by the caller. */
function withoutLookAhead(pattern: string): string {
  const start = pattern.indexOf("(?!");
  if (start === -1) return pattern;
  let depth = 0;
  for (let end = start; end < pattern.length; end += 1) {
    if (pattern[end] === "\\") end += 1;
    else if (pattern[end] === "(") depth += 1;
    else if (pattern[end] === ")") depth -= 1;
    if (depth === 0) return withoutLookAhead(pattern.slice(0, start) + pattern.slice(end + 1));
  }
  throw new Error(`${pattern} is not closed`);
}

/** @param name file in openapi/, without its ending */
export function readSchemas(name: string) {
  const document: {
    paths: Record<string, Record<string, OperationObject> & { parameters?: Parameter[] }>;
  } = parse(readFileSync(new URL(`../../openapi/${name}.yaml`, import.meta.url), "utf8"));
  const ajv = new Ajv2020({ strict: false, coerceTypes: false });
  addFormats.default(ajv);
  ajv.addSchema(document, "document");

  function resolve<T extends { $ref?: string }>(value: T): T {
    if (value.$ref === undefined) return value;
    let target: unknown = document;
    for (const key of value.$ref.slice(2).split("/")) {
      target = typeof target === "object" && target !== null ? Reflect.get(target, key) : undefined;
    }
    return resolve(target as T);
  }

  const compiled = new Map<Schema, ValidateFunction>();
  function allows(schema: Schema, value: unknown): boolean {
    let validate = compiled.get(schema);
    if (!validate) {
      validate = ajv.compile(JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"document#/')));
      compiled.set(schema, validate);
    }
    return validate(value);
  }

  function textOf({ pattern, format, minLength = 0, maxLength = 60, ...schema }: Schema): Values {
    if (schema.enum) return fc.constantFrom(...schema.enum);
    if (format === "email") return fc.emailAddress();
    if (format === "uuid") return fc.uuid();
    if (format === "date-time") return moments;
    if (pattern !== undefined) return fc.stringMatching(new RegExp(withoutLookAhead(pattern)));
    return anyText(minLength, maxLength);
  }

  function integerOf({ minimum, maximum, multipleOf, then }: Schema): Values {
    const [min, max] = [minimum ?? -(2 ** 31), maximum ?? 2 ** 31];
    const step = multipleOf ?? then?.multipleOf ?? 1;
    const multiples = fc.integer({ min: Math.ceil(min / step), max: Math.floor(max / step) });
    return fc.oneof(
      multiples.map((count) => count * step),
      fc.integer({ min, max }),
    );
  }

  function arrayOf({ items = {}, minItems: minLength = 0, maxItems = 10, uniqueItems }: Schema): Values {
    const length = { minLength, maxLength: Math.min(maxItems, minLength + 10) };
    return uniqueItems ? fc.uniqueArray(valid(items), length) : fc.array(valid(items), length);
  }

  function objectOf({ properties = {}, required = [], additionalProperties }: Schema): Values {
    const members = Object.entries(properties).map(([key, schema]) => [key, valid(schema)] as const);
    const declared = fc.record(Object.fromEntries(members), { requiredKeys: [...required] });
    if (additionalProperties === false) return declared;
    const names = anyText(1, 20).filter((key) => !Object.hasOwn(properties, String(key)));
    const more = fc.dictionary(names.map(String), anyJson, { maxKeys: 5 });
    return fc.tuple(more, declared).map(([extra, own]) => ({ ...extra, ...own }));
  }

  function ofType(type: string | undefined, schema: Schema): Values {
    switch (type) {
      case "string":
        return textOf(schema);
      case "object":
        return objectOf(schema);
      case "integer":
        return integerOf(schema);
      case "boolean":
        return fc.boolean();
      case "array":
        return arrayOf(schema);
      case "null":
        return fc.constant(null);
      default:
        throw new Error(`no values for a schema of type ${type}`);
    }
  }

  /** Values that the schema allows. */
  function valid(reference: Schema): Values {
    const schema = resolve(reference);
    const types = [schema.type ?? []].flat();
    const made = schema.anyOf?.map(valid) ?? types.map((type) => ofType(type, schema));
    return fc.oneof(...made).filter((value) => allows(reference, value));
  }

  /** Text that breaks what the schema says of texts. */
  function invalidTexts({ pattern, format, minLength = 0, maxLength, ...schema }: Schema): Values[] {
    const texts: Values[] = [];
    if (schema.enum || format === "uuid" || format === "date-time") texts.push(anyText(0, 20));
    if (format === "date-time") texts.push(fc.date({ noInvalidDate: true }).map((date) => `${date}`));
    if (minLength > 0) texts.push(anyText(0, minLength - 1));
    if (maxLength !== undefined)
      texts.push(anyText(0, 3).map((text) => `${text}${"a".repeat(maxLength + 1)}`));
    if (pattern !== undefined) texts.push(anyText(1, 20), fc.constantFrom(".", "..", "find-by-phone"));
    if (format === "email")
      texts.push(
        fc.emailAddress().map((email) => email.replace("@", " ")),
        anyText(1, 20),
      );
    return texts;
  }

  function invalidIntegers({ minimum = 0, maximum = 0 }: Schema): Values[] {
    return [fc.integer({ max: minimum - 1 }), fc.integer({ min: maximum + 1 }), fc.integer(), fc.double()];
  }

  function invalidArrays(schema: Schema): Values[] {
    const { items = {}, maxItems } = schema;
    const good = arrayOf(schema).map((value) => [...(value as unknown[])]);
    return [
      fc.tuple(good, invalid(items)).map(([values, bad]) => [...values, bad]),
      valid(items).map((value) => [value, value]),
      ...(maxItems === undefined ? [] : [valid(items).map((value) => Array(maxItems + 1).fill(value))]),
      fc.constant([]),
    ];
  }

  /** Objects with one thing wrong: a member missing, too many, or not allowed. */
  function invalidObjects(schema: Schema): Values[] {
    const { properties = {}, required = [], additionalProperties, minProperties = 0 } = schema;
    const good = objectOf(schema).map((value) => ({ ...(value as object) }));
    const without = required.map((key) => good.map((value) => ({ ...value, [key]: undefined })));
    const wrong = Object.entries(properties).map(([key, member]) =>
      fc.tuple(good, invalid(member)).map(([value, bad]) => ({ ...value, [key]: bad })),
    );
    const more = fc
      .tuple(good, anyText(1, 20), anyJson)
      .map(([value, key, extra]) => ({ [String(key)]: extra, ...value }));
    return [
      ...without,
      ...wrong,
      ...(additionalProperties === false ? [more] : []),
      ...(minProperties > 0 ? [fc.constant({})] : []),
    ].map((objects) => objects.map((value) => JSON.parse(JSON.stringify(value))));
  }

  /** Values that the schema does not allow, most of them nearly right. */
  function invalid(reference: Schema): Values {
    const schema = resolve(reference);
    const types = [schema.type ?? []].flat();
    const makers: Record<string, (schema: Schema) => Values[]> = {
      string: invalidTexts,
      integer: invalidIntegers,
      array: invalidArrays,
      object: invalidObjects,
    };
    const nearly = types.flatMap((type) => makers[type]?.(schema) ?? []);
    return fc
      .oneof({ arbitrary: anyJson, weight: 1 }, ...nearly.map((arbitrary) => ({ arbitrary, weight: 3 })))
      .filter((value) => !allows(reference, value));
  }

  const operations: Described[] = Object.values(document.paths).flatMap(
    ({ parameters: shared = [], ...item }) =>
      Object.values(item).flatMap(({ operationId, security = [], parameters = [], requestBody }) => {
        if (operationId === undefined) return [];
        const listed = Object.entries(requestBody?.content ?? {}).map(([type, { schema }]) => [type, schema]);
        const more = (requestBody?.["x-also-accepts"] ?? []).map((type) => [type, listed[0]?.[1]]);
        return {
          id: operationId,
          security: Object.keys(security[0] ?? {}),
          parameters: [...shared, ...parameters].map(resolve),
          bodies: Object.fromEntries([...listed, ...more]),
          bodyRequired: requestBody?.required === true,
        };
      }),
  );
  return { operations, valid, invalid, allows, resolve };
}
