/** Something that is not as it should be: the demo ends at the first of it. */
import { isDeepStrictEqual } from "node:util";

/** What was expected and what came instead, in words. */
export class Mismatch extends Error {
  override readonly name = "Mismatch";
  readonly expected: string;
  readonly got: string;

  constructor(expected: string, got: string, options?: ErrorOptions) {
    super(`expected ${expected}, got ${got}`, options);
    this.expected = expected;
    this.got = got;
  }
}

/** @throws Mismatch unless both are the same, all the way down */
export function same(got: unknown, expected: unknown, what: string): void {
  if (isDeepStrictEqual(got, expected)) return;
  throw new Mismatch(`${what}\n${JSON.stringify(expected)}`, String(JSON.stringify(got)));
}

/** An answer of openapi-fetch. */
interface Answer<Data, Failure> {
  readonly data?: Data;
  readonly error?: Failure;
  readonly response: Response;
}

/** The body of an answer that must be a success with one. @throws Mismatch */
export function bodyOf<Data>(status: number, answer: Answer<Data, unknown>): Data {
  statusIs(status, answer);
  if (answer.data === undefined) throw new Mismatch(`a body with status ${status}`, "none");
  return answer.data;
}

/** The body of an answer that must be this failure. @throws Mismatch */
export function failureOf<Failure>(status: number, answer: Answer<unknown, Failure>): Failure {
  statusIs(status, answer);
  if (answer.error === undefined) throw new Mismatch(`a body with status ${status}`, "none");
  return answer.error;
}

/** @throws Mismatch unless the answer has this status */
export function statusIs(status: number, { response }: Answer<unknown, unknown>): void {
  if (response.status !== status) throw new Mismatch(`status ${status}`, `status ${response.status}`);
}
