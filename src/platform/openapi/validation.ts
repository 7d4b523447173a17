/** Validates the values of a request. Invalid input is refused as a whole, with a pointer to each place. */
import type { ErrorObject, ValidateFunction } from "ajv";
import { type InputError, invalidInput, mostErrors } from "../base/errors.ts";
import { escapePointer, type ParameterValues } from "./parameters.ts";

/** The values of a request, in the shape that openapi-backend's validators check and coerce. */
interface RequestValues extends ParameterValues {
  readonly requestBody?: unknown;
}

/** Finds what a body violates beside its schema. Its members have the types that the schema gives them. */
export type BodyRules = (body: unknown) => readonly InputError[];

/**
 * @param rules are asked only where the values violate the schema, so that all that is wrong is named at once
 * @throws ServiceError `invalid_request`, with a pointer to every invalid place
 */
export function validate(
  validators: readonly ValidateFunction[],
  values: RequestValues,
  rules?: BodyRules,
): void {
  const violations = violationsOf(validators, values);
  if (violations.length === 0) return;
  const errors: InputError[] = [];
  const further = rules ? furtherErrors(validators, values, violations, rules) : [];
  for (const violation of violations) {
    const error = inputError(violation);
    // What the rules say of the same place says more.
    addError(errors, further.find(({ pointer }) => pointer === error.pointer) ?? error);
  }
  for (const error of further) addError(errors, error);
  throw invalidInput(errors);
}

function violationsOf(validators: readonly ValidateFunction[], values: RequestValues): ErrorObject[] {
  const found = validators.flatMap((validator) => (validator(values) ? [] : (validator.errors ?? [])));
  const places = new Set<string>();
  for (const error of found) if (!isOfAlternative(error)) addPlaces(places, error.instancePath);
  // That a value is none of those that it may be, such as null, says less than what is wrong in it.
  const saysLess = (error: ErrorObject) => isOfAlternative(error) && places.has(error.instancePath);
  return found.filter((error) => error.keyword !== "if" && !saysLess(error));
}

function isOfAlternative({ keyword, schemaPath }: ErrorObject): boolean {
  return keyword === "anyOf" || (keyword === "type" && /\/anyOf\/\d+\//.test(schemaPath));
}

/** Adds a place and all that it is within. */
function addPlaces(places: Set<string>, place: string): void {
  for (let end = place; end !== ""; end = end.slice(0, end.lastIndexOf("/"))) places.add(end);
}

/** One wrong value is one error: keywords such as `anyOf` and `if` report it again, and say less. */
function addError(errors: InputError[], error: InputError): void {
  const isNew = errors.every(({ pointer }) => pointer !== error.pointer);
  if (isNew && errors.length < mostErrors) errors.push(error);
}

/** What the rules find in the body without the members that have no right type; nothing if one of these is needed. */
function furtherErrors(
  validators: readonly ValidateFunction[],
  values: RequestValues,
  violations: readonly ErrorObject[],
  rules: BodyRules,
): readonly InputError[] {
  const requestBody: unknown = structuredClone(values.requestBody);
  for (const { keyword, instancePath, params } of violations) {
    if (keyword === "type") removeMember({ requestBody }, stepsOf(instancePath));
    else if (keyword === "additionalProperties")
      removeMember({ requestBody }, [...stepsOf(instancePath), String(params["additionalProperty"])]);
  }
  const left = violationsOf(validators, { ...values, requestBody });
  return left.some(({ keyword }) => ofTypes.has(keyword)) ? [] : rules(requestBody);
}

/** Where one of these keywords is violated, a value has another type than the schema says. */
const ofTypes: ReadonlySet<string> = new Set(["type", "required", "additionalProperties"]);

function stepsOf(pointer: string): string[] {
  return pointer
    .split("/")
    .slice(1)
    .map((step) => step.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Removes a member of an object at any depth. An item of a list stays: the others would get other places. */
function removeMember(value: unknown, [step, ...more]: readonly string[]): void {
  if (typeof value !== "object" || value === null || step === undefined) return;
  if (more.length > 0) removeMember(Reflect.get(value, step), more);
  else if (!Array.isArray(value)) Reflect.deleteProperty(value, step);
}

function inputError({ instancePath, keyword, params, message = "is not valid" }: ErrorObject): InputError {
  const pointer = instancePath.replace(/^\/requestBody/, "/body");
  switch (keyword) {
    case "required":
      return { pointer: `${pointer}/${escapePointer(params["missingProperty"])}`, message: "is required" };
    case "additionalProperties":
      return {
        pointer: `${pointer}/${escapePointer(params["additionalProperty"])}`,
        message: "is not a member of this object",
      };
    case "minProperties":
      return { pointer, message: `must have at least ${params["limit"]} member` };
    case "not":
      return { pointer, message: "must not be this value" };
    case "const":
      return { pointer, message: `must be ${JSON.stringify(params["allowedValue"])}` };
    case "enum":
      return { pointer, message: `must be one of ${JSON.stringify(params["allowedValues"])}` };
    default:
      return { pointer, message };
  }
}
