/**
 * Tables of cases that lead every operation of a document to every status that it declares, and the count of
 * what was reached.
 */
import { expect } from "vitest";
import type { Answer, CallOptions, ContractCall } from "../support/contract-api.ts";
import type { Contract } from "../support/contract-check.ts";

/** Servers that are told apart by their database: one that is healthy, one that is broken, one that is away. */
export type Deployment = "healthy" | "broken" | "away";

export type Request = () => CallOptions | Promise<CallOptions>;

export interface Case {
  readonly operation: string;
  readonly status: number;
  /** Ends the test's name. */
  readonly when: string;
  /** `code` of the problem, or `error` of the OAuth operations. */
  readonly code: string | undefined;
  readonly on: Deployment;
  readonly request: Request;
  /**
   * How often the request is sent at most, until it gets the status; 1 unless given. A limit on requests lets one pass
   * again as time goes on, so which of them is the first to be refused cannot be said.
   */
  readonly tries?: number;
}

export interface Outcome {
  readonly status: number;
  readonly when: string;
  /** Of a refusal; for each operation, where it depends. */
  readonly code?: string | ((operation: string) => string);
  readonly on?: Deployment;
}

export function one(operation: string, status: number, when: string, request: Request, code?: string): Case {
  return { operation, status, when, code, on: "healthy", request };
}

/** @param wellFormed a request to each operation with which nothing is wrong */
export function casesFrom(wellFormed: Readonly<Record<string, Request>>) {
  /** The same case for many operations: a well-formed request, changed. */
  return function each(
    operations: readonly string[],
    { status, when, code, on = "healthy" }: Outcome,
    change: (request: CallOptions, operation: string) => CallOptions = (request) => request,
  ): Case[] {
    return operations.map((operation) => ({
      operation,
      status,
      when,
      code: typeof code === "function" ? code(operation) : code,
      on,
      request: async () => change((await wellFormed[operation]?.()) ?? {}, operation),
    }));
  };
}

export function withoutCredentials({ as: _as, ...rest }: CallOptions): CallOptions {
  return rest;
}

export function withRaw(
  { json: _json, form: _form, ...rest }: CallOptions,
  raw: string,
  mediaType: string,
): CallOptions {
  return { ...rest, raw, headers: { ...rest.headers, "content-type": mediaType } };
}

/** @param call of the server of a case */
export function statusRun(contract: Contract, call: (on: Deployment) => ContractCall) {
  const reached = new Set<string>();
  return {
    /** One case: the status and the code are these, and the response is what the document says. */
    async answers({ operation, status, code, on, request, tries = 1 }: Case): Promise<Answer> {
      const send = async () => call(on)(operation, await request());
      let answer = await send();
      for (let sent = 1; sent < tries && answer.status !== status; sent += 1) answer = await send();
      expect(answer.status, answer.text).toBe(status);
      if (code !== undefined && status >= 400) {
        const { code: problem, error } = Object(answer.body);
        expect(problem ?? error).toBe(code);
      }
      reached.add(`${operation} ${status}`);
      return answer;
    },
    /** Fails if a status that the document declares was not reached. @param least how many it declares, at least */
    expectAllReached(least: number): void {
      const declared = contract.operations.flatMap(({ id, statuses }) => statuses.map((n) => `${id} ${n}`));
      expect(declared.length).toBeGreaterThan(least);
      expect(declared.filter((pair) => !reached.has(pair))).toEqual([]);
    },
  };
}
