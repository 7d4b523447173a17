/** What handlers get and give, by openapi-typescript's operations: what one does not declare does not compile. */
import type { InputError } from "../base/errors.ts";
import type { RequestContext } from "../base/request-context.ts";
import type { NodeRequest } from "../door/responses.ts";

/** Returns a header by its name in lower case; undefined if it was not sent. */
export type HeaderReader = (name: string) => string | undefined;

/** Reads headers from Node's raw ones, repeated ones joined with commas (RFC 9110 section 5.3). Not for `Cookie`. */
export function headerReader({ rawHeaders }: Pick<NodeRequest, "rawHeaders">): HeaderReader {
  return (name) => {
    let value: string | undefined;
    for (let at = 0; at < rawHeaders.length; at += 2) {
      const sent = rawHeaders[at];
      if (sent === undefined || sent.length !== name.length || sent.toLowerCase() !== name) continue;
      value = value === undefined ? rawHeaders[at + 1] : `${value}, ${rawHeaders[at + 1]}`;
    }
    return value;
  };
}

/** The members of T that are declared by name, without its index signature. */
type Declared<T> = { [K in keyof T as string extends K ? never : number extends K ? never : K]: T[K] };

/** T as a response states it: every member is a key, at any depth; an optional one may be undefined. */
export type Stated<T> = T extends readonly (infer Item)[]
  ? readonly Stated<Item>[]
  : T extends object
    ? {
        readonly [K in keyof T]-?:
          | Stated<T[K]>
          | (Record<never, never> extends Pick<T, K> ? undefined : never);
      }
    : T;

/**
 * Ends the taking apart of a body: `const { name, ...rest } = body; nothingElse(rest);`. A member that is added to the
 * document does not compile until it is taken out by name too.
 */
export function nothingElse(_rest: Readonly<Record<string, never>>): void {
  // The type is the check.
}

type ParametersOf<Op, In extends string> = Op extends { parameters: infer P }
  ? In extends keyof P
    ? [NonNullable<P[In]>] extends [never]
      ? Record<never, never>
      : NonNullable<P[In]>
    : Record<never, never>
  : Record<never, never>;

/** The body of an operation. */
export type BodyOf<Op> = Op extends { requestBody: { content: infer C } }
  ? C[keyof C]
  : Op extends { requestBody?: { content: infer C } }
    ? C[keyof C] | undefined
    : undefined;

interface OperationRequest<Op> {
  readonly path: ParametersOf<Op, "path">;
  readonly query: ParametersOf<Op, "query">;
  readonly body: BodyOf<Op>;
}

/** Headers that the handler has to set. The binding sets the request id and the headers with one fixed value. */
type OwnHeaders<H> = {
  [K in keyof Declared<H> as K extends "X-Request-Id"
    ? never
    : string extends Declared<H>[K]
      ? K
      : never]: string;
};

type HeadersOf<R> = R extends { headers: infer H }
  ? keyof OwnHeaders<H> extends never
    ? { readonly headers?: never }
    : { readonly headers: OwnHeaders<H> }
  : { readonly headers?: never };

type ContentOf<R> = R extends { content: { "application/json": infer B } }
  ? { readonly body: Stated<B> }
  : { readonly body?: never };

type SuccessStatus = 200 | 201 | 202 | 204 | 304;

/** A success as the operation declares it. Errors are thrown, as `ServiceError`. */
type OperationResponse<Op> = Op extends { responses: infer R }
  ? { [S in keyof R & SuccessStatus]: { readonly status: S } & ContentOf<R[S]> & HeadersOf<R[S]> }[keyof R &
      SuccessStatus]
  : never;

export interface Call<Caller> {
  readonly context: RequestContext;
  /** The method, in upper case. An operation that is a GET is called for HEAD too, and must change nothing then. */
  readonly method: string;
  /** Set on every operation that the document protects, unless it lists no scheme (`{}`) as an alternative. */
  readonly caller: Caller | undefined;
  readonly header: HeaderReader;
  /** The caller's address, by {@link CallerAddress}. */
  readonly address: () => string | undefined;
}

export type Handlers<Operations, Caller> = {
  readonly [Id in keyof Operations]: (
    request: OperationRequest<Operations[Id]>,
    call: Call<Caller>,
  ) => Promise<OperationResponse<Operations[Id]>>;
};

/** Checks the credentials of one scheme. Undefined: none, or wrong ones; a ServiceError refuses in another way. */
export type SecurityHandler<Caller> = (
  call: Omit<Call<Caller>, "caller">,
) => Caller | undefined | Promise<Caller | undefined>;

/**
 * Checks credentials in a body, not validated yet; the call's caller is that by the headers. A ServiceError refuses.
 */
export type BodySecurityHandler<Caller> = (body: unknown, call: Call<Caller>) => Caller | Promise<Caller>;

/** What bodies violate beside their schemas, by operation. */
export type Rules<Operations> = {
  readonly [Id in keyof Operations]?: (body: BodyOf<Operations[Id]>) => readonly InputError[];
};
