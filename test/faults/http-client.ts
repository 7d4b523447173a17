/** HTTP/1.1 as the load speaks it: connections that are kept, a limit for each request, and no retry of its own. */
import { Agent, request } from "node:http";
import { decodeJwt } from "jose";

/** What came of a request. */
export interface HttpResponse {
  /** 0 if no response came: the connection failed, or the limit was reached. */
  readonly status: number;
  /** JSON, if it was that. */
  readonly body: unknown;
}

export interface Call {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** Below /api/auth. */
  readonly path: string;
  /** The `Authorization` header. */
  readonly as: string;
  readonly form?: Readonly<Record<string, string>>;
  readonly json?: object;
  /** Milliseconds after which the caller is gone, and never learns what came of it. */
  readonly goneAfterMs?: number;
}

/** Milliseconds that a caller waits: longer than any time limit of the product. */
export const patienceMs = 15_000;

/** Basic credentials. */
export const basic = (id: string, secret: string): string =>
  `Basic ${Buffer.from(`${id}:${secret}`).toString("base64")}`;

export class HttpClient {
  readonly #agent = new Agent({ keepAlive: true });

  /** @param origin of the server, as `http://127.0.0.1:8080` */
  send(origin: string, { method, path, as, form, json, goneAfterMs }: Call): Promise<HttpResponse> {
    const { promise, resolve } = Promise.withResolvers<HttpResponse>();
    const text = form ? new URLSearchParams(form).toString() : json ? JSON.stringify(json) : "";
    const headers = {
      authorization: as,
      ...(text !== "" && {
        "content-type": form ? "application/x-www-form-urlencoded" : "application/json",
        "content-length": Buffer.byteLength(text),
      }),
    };
    const signal = AbortSignal.timeout(goneAfterMs ?? patienceMs);
    const sent = request(`${origin}/api/auth${path}`, { agent: this.#agent, method, headers, signal });
    sent.on("error", () => resolve({ status: 0, body: undefined }));
    sent.on("response", (response) => {
      let received = "";
      response.setEncoding("utf8").on("data", (part: string) => {
        received += part;
      });
      response.on("error", () => resolve({ status: 0, body: undefined }));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body: parsed(received) }));
    });
    sent.end(text);
    return promise;
  }

  close(): void {
    this.#agent.destroy();
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Whether the service has declined to do anything, or could not be reached: what a fault is allowed to cause. */
export const isRefusal = ({ status }: HttpResponse): boolean => [0, 429, 503].includes(status);

/** A member of a JSON body that is a text. */
export function member({ body }: HttpResponse, name: string): string {
  const value = typeof body === "object" && body !== null ? Reflect.get(body, name) : undefined;
  return typeof value === "string" ? value : "";
}

export const isActive = ({ body }: HttpResponse): boolean =>
  typeof body === "object" && body !== null && Reflect.get(body, "active") === true;

/** The id of the authorization that an access token is of: its jti begins with that. */
export const authorizationOf = (accessToken: string): string =>
  decodeJwt(accessToken).jti?.slice(0, 36) ?? "";

export const introspection = (as: string, token: string): Call => ({
  method: "POST",
  path: "/oauth2/v1/introspect",
  as,
  form: { token },
});

export const grant = (as: string, form: Record<string, string>): Call => ({
  method: "POST",
  path: "/oauth2/v1/tokens",
  as,
  form,
});
