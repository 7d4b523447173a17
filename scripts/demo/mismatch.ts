/** Differences between a response and the expectation. The first one ends the demo. */
import { isDeepStrictEqual } from "node:util";

/** The expected and the actual value, in words. */
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

/** @throws Mismatch unless both are deeply equal */
export function same(got: unknown, expected: unknown, what: string): void {
  if (isDeepStrictEqual(got, expected)) return;
  throw new Mismatch(`${what}\n${JSON.stringify(expected)}`, String(JSON.stringify(got)));
}

/** The result of a call with openapi-fetch. */
interface FetchResult<Data, Failure> {
  readonly data?: Data;
  readonly error?: Failure;
  readonly response: Response;
}

/** The body of a success. @throws Mismatch for another status, or without a body */
export function bodyOf<Data>(status: number, result: FetchResult<Data, unknown>): Data {
  statusIs(status, result);
  if (result.data === undefined) throw new Mismatch(`a body with status ${status}`, "none");
  return result.data;
}

/** The body of this failure. @throws Mismatch for another status, or without a body */
export function failureOf<Failure>(status: number, result: FetchResult<unknown, Failure>): Failure {
  statusIs(status, result);
  if (result.error === undefined) throw new Mismatch(`a body with status ${status}`, "none");
  return result.error;
}

/** @throws Mismatch unless the response has this status */
export function statusIs(status: number, { response }: FetchResult<unknown, unknown>): void {
  if (response.status !== status) throw new Mismatch(`status ${status}`, `status ${response.status}`);
}
