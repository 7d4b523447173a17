/**
 * Kind of setting that holds JSON. What is wrong is reported under the path where it is wrong, as in
 * `[1].grantTypes[0]`, in the words of the schema, and never with the value: it may be a secret.
 */
import { Ajv, type ErrorObject, type SchemaObject } from "ajv";
import type { Environment, Parsed, SettingKind } from "./kinds.ts";

const ajv = new Ajv({ allErrors: true, useDefaults: true, verbose: true, keywords: ["example"] });

/**
 * JSON that fits a schema, with the schema's defaults filled in.
 *
 * @param expects as in "a JSON array of clients"
 * @param schema of a T; every schema in it has a `description` of what a value is, as in "an array of scopes"
 * @param check what a schema cannot say, asked only of values that fit it: problems that begin with their path
 */
export function json<T>(
  expects: string,
  schema: SchemaObject,
  check: (value: T, environment: Environment) => readonly string[],
): SettingKind<T> {
  const fits = ajv.compile<T>(schema);
  return {
    expects,
    quotable: false,
    parse: (text, environment): Parsed<T> => {
      let value: unknown;
      try {
        value = JSON.parse(text);
      } catch (error) {
        // The engine's message quotes the text around the mistake; only the position may leave here.
        const position = /at position (\d+)/.exec(String(error))?.[1];
        return {
          problems: [
            `must be ${expects}, but is not JSON${position ? ` from character ${position} on` : ""}`,
          ],
        };
      }
      if (!fits(value)) return { problems: [...new Set(fits.errors?.map(inWords))] };
      const problems = check(value, environment);
      return problems.length > 0 ? { problems } : { value };
    },
  };
}

function inWords({ instancePath, keyword, params, parentSchema }: ErrorObject): string {
  const at = (member?: unknown) => pathOf(instancePath, member);
  if (keyword === "required") return `${at(params["missingProperty"])} is missing`;
  if (keyword === "additionalProperties") return `${at(params["additionalProperty"])} is not known`;
  if (keyword === "uniqueItems") return `${at()} must not name the same twice`;
  return `${at()} must be ${String(parentSchema?.["description"])}`.trimStart();
}

/** A JSON pointer, and perhaps a member of what it points at, as one would write it in JavaScript. */
function pathOf(pointer: string, member?: unknown): string {
  const steps = pointer
    .split("/")
    .slice(1)
    .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
  if (member !== undefined) steps.push(String(member));
  return steps
    .map((step) =>
      /^\d+$/.test(step)
        ? `[${step}]`
        : /^\w{1,60}$/.test(step)
          ? `.${step}`
          : `[${JSON.stringify(step.slice(0, 60))}]`,
    )
    .join("")
    .replace(/^\./, "");
}
