/** Typed calls of the operations of both documents, by their ids. */
import type { operations as AuthOperations } from "@gatepost/contracts/auth";
import { authOperations, pushOperations } from "@gatepost/contracts/operations";
import type { operations as PushOperations } from "@gatepost/contracts/push";
import { baseOf, basic, type ClientCredentials, call } from "./call.ts";
import { GatepostError } from "./errors.ts";

export interface ServiceClientOptions {
  /** The base URL of the service, such as `https://api.example.com/api/auth`. */
  readonly url: string;
  /** Sent as HTTP Basic. For a bearer token pass an `authorizedFetch` instead. */
  readonly credentials?: Required<ClientCredentials>;
  readonly fetch?: typeof fetch;
}

type Content<Body> = Body extends { content: infer Types } ? Types[keyof Types] : never;
type BodyOf<Operation> = Operation extends { requestBody: infer Body }
  ? { readonly body: Content<Body> }
  : Operation extends { requestBody?: infer Body }
    ? { readonly body?: Content<Exclude<Body, undefined>> }
    : never;
type ParametersOf<Operation> = Operation extends { parameters: infer Parameters }
  ? Omit<Parameters, "cookie">
  : never;

/** What an operation takes: `path`, `query`, `header` and `body` as the document has them, and a signal that ends it. */
export type InputOf<Operation> = ParametersOf<Operation> &
  BodyOf<Operation> & { readonly signal?: AbortSignal };

type Success<Responses> = {
  [Status in keyof Responses & (200 | 201 | 202 | 204)]: Responses[Status] extends { content: infer Types }
    ? Types[keyof Types]
    : undefined;
}[keyof Responses & (200 | 201 | 202 | 204)];

/** The JSON of a success; undefined where it has no body. */
export type OutputOf<Operation> = Operation extends { responses: infer Responses }
  ? Success<Responses>
  : never;

type Arguments<Input> = Record<never, never> extends Input ? [input?: Input] : [input: Input];
type ItemOf<Output> = Output extends { content: readonly (infer Item)[] } ? Item : never;
type ListIn<Operations> = {
  [Id in keyof Operations]: [ItemOf<OutputOf<Operations[Id]>>] extends [never] ? never : Id;
}[keyof Operations];

export interface ServiceClient<Operations> {
  /**
   * One request, which is not repeated.
   * @throws ProblemError or OAuthError where it is refused, UnavailableError where it is unknown what became of it
   */
  request<Id extends keyof Operations>(
    operation: Id,
    ...input: Arguments<InputOf<Operations[Id]>>
  ): Promise<OutputOf<Operations[Id]>>;
  /** Everything that a list has, from the page that is asked for on; each page is asked for when it is reached. */
  list<Id extends ListIn<Operations>>(
    operation: Id,
    ...input: Arguments<InputOf<Operations[Id]>>
  ): AsyncGenerator<ItemOf<OutputOf<Operations[Id]>>, void>;
}

export type AuthClient = ServiceClient<AuthOperations>;
export type PushClient = ServiceClient<PushOperations>;

export const createAuthClient = (options: ServiceClientOptions): AuthClient =>
  createClient(authOperations, options);

export const createPushClient = (options: ServiceClientOptions): PushClient =>
  createClient(pushOperations, options);

interface Place {
  readonly method: string;
  readonly path: string;
  readonly form?: true;
}

/** An input, where the compiler has held it against its operation. */
interface AnyInput {
  readonly path?: Readonly<Record<string, unknown>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly header?: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
  readonly signal?: AbortSignal;
}

interface Page {
  readonly content: readonly unknown[];
  readonly next?: string;
  readonly number?: number;
  readonly size?: number;
  readonly totalElements?: number;
}

function createClient<Operations>(
  table: Readonly<Record<keyof Operations, Place>>,
  { url, credentials, ...own }: ServiceClientOptions,
): ServiceClient<Operations> {
  const base = baseOf(url);
  const send = own.fetch ?? ((...request) => fetch(...request));
  const authorization = credentials && basic(credentials.clientId, credentials.clientSecret);

  function request(operation: keyof Operations, { path, query, header, body, signal }: AnyInput = {}) {
    if (!Object.hasOwn(table, operation))
      throw new TypeError(`unknown operation ${JSON.stringify(operation)}`);
    const { method, path: template, form } = table[operation];
    const headers = new Headers({ accept: "application/json" });
    if (authorization !== undefined) headers.set("authorization", authorization);
    for (const [name, value] of pairsOf(header)) headers.set(name, value);
    if (body !== undefined && !form) headers.set("content-type", "application/json");
    const text = form ? new URLSearchParams(pairsOf(Object(body))) : JSON.stringify(body);
    const search = new URLSearchParams(pairsOf(query)).toString();
    const address = base + template.replaceAll(/\{(\w+)\}/g, (_, name) => segment(name, path?.[name]));
    const init = { method, headers, ...(body !== undefined && { body: text }) };
    return call({ fetch: send }, address + (search && `?${search}`), init, signal);
  }

  return {
    request: (operation, ...[input]) => request(operation, Object(input)),
    async *list(operation, ...[input]) {
      const first: AnyInput = Object(input);
      for (let more: object | undefined = {}; more; ) {
        const page: Page = await request(operation, { ...first, query: { ...first.query, ...more } });
        yield* Object(page.content);
        more = followingOf(page);
      }
    },
  };
}

/** An array is a parameter several times. */
function pairsOf(values: Readonly<Record<string, unknown>> = {}): [string, string][] {
  return Object.entries(values).flatMap(([name, value]) =>
    [value]
      .flat()
      .filter((one) => one !== undefined)
      .map((one): [string, string] => [name, String(one)]),
  );
}

/** @throws GatepostError for what would name another path */
function segment(name: string, value: unknown): string {
  const text = String(value ?? "");
  if (/^\.{0,2}$/.test(text)) throw new GatepostError(`${JSON.stringify(text)} cannot be a ${name}`);
  return encodeURIComponent(text);
}

function followingOf({ content, next, number, size, totalElements }: Page) {
  if (next !== undefined) return { after: next };
  if (number === undefined || size === undefined || totalElements === undefined) return undefined;
  return content.length > 0 && (number + 1) * size < totalElements ? { page: number + 1 } : undefined;
}
