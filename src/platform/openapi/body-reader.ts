/** The bodies of operations that come by another way than the operations' routes, such as RPC. */
import { invalidInput } from "../base/errors.ts";
import type { ContractDocument } from "./document.ts";
import type { BodyOf, HeaderReader, Rules } from "./handlers.ts";
import { jsonProblem } from "./json-problem.ts";
import { parameterReader } from "./parameters.ts";
import { type BodyRules, validate } from "./validation.ts";

/**
 * @param rules as the binding has them
 * @returns checks a body and the headers beside it as the binding does, with the same errors; for operations whose
 *   URLs have no parameters
 */
export function createBodyReader<Operations>(document: ContractDocument, rules: Rules<Operations>) {
  const rulesOf = new Map<string, BodyRules>(Object.entries(rules));

  /** @throws ServiceError `invalid_request` */
  function isValid<Body>(id: string, body: unknown, header: HeaderReader): body is Body {
    const operation = document.operations.find((one) => one.id === id);
    if (!operation) throw new Error(`there is no operation ${id}`);
    // A message may hold texts that no JSON body may: those with a NUL character.
    const problem = jsonProblem(JSON.stringify(body));
    if (problem) throw invalidInput([problem]);
    const parameters = parameterReader(operation)(() => "", header);
    validate(operation.requestValidators(), { ...parameters, requestBody: body }, rulesOf.get(id));
    return true;
  }

  return <Id extends keyof Operations & string>(
    id: Id,
    body: unknown,
    header: HeaderReader,
  ): BodyOf<Operations[Id]> => {
    if (isValid<BodyOf<Operations[Id]>>(id, body, header)) return body;
    throw new Error("an invalid body was not refused");
  };
}
