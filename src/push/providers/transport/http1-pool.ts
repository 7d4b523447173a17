/**
 * Connections to one origin over HTTP/1.1, for push services that speak nothing newer. Takes requests and
 * gives replies as {@link Http2Pool} does; Node's agent owns the connections and the queue.
 */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { urlToHttpOptions } from "node:url";
import { codeOf } from "../../../platform/base/error-code.ts";
import {
  type ExchangeResult,
  maxBodyBytes,
  type NoResponse,
  type ProviderResponse,
  type RawHeaders,
} from "./http2-exchange.ts";

/** Connecting failed, or the reason is one of TLS: nothing was sent. */
const unreachable = /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ERR_TLS_.*|.*CERT.*)$/;

interface Http1PoolOptions {
  readonly origin: string;
  /** Connections, and so requests, at once. */
  readonly maxSockets: number;
  /** Milliseconds without a request, after which a connection is closed. */
  readonly idleMs: number;
  /** Milliseconds from asking to the end of the answer, waiting included. */
  readonly timeoutMs: number;
}

export class Http1Pool {
  /** Where every request goes. Never a URL made with the path: a path such as `//host` would lead elsewhere. */
  readonly #origin: ReturnType<typeof urlToHttpOptions>;
  readonly #timeoutMs: number;
  readonly #agent: HttpAgent;
  readonly #isSecure: boolean;
  readonly #open = new Set<Promise<ExchangeResult>>();

  constructor({ origin, maxSockets, idleMs, timeoutMs }: Http1PoolOptions) {
    this.#origin = urlToHttpOptions(new URL(origin));
    this.#timeoutMs = timeoutMs;
    this.#isSecure = origin.startsWith("https:");
    const options = { keepAlive: true, maxSockets, timeout: Math.max(idleMs, timeoutMs) };
    this.#agent = this.#isSecure ? new HttpsAgent(options) : new HttpAgent(options);
  }

  /** Asks the peer. Never rejects. */
  request(headers: RawHeaders, body: string | Uint8Array): Promise<ExchangeResult> {
    const reply = this.#ask(headers, body);
    this.#open.add(reply);
    const forget = () => this.#open.delete(reply);
    void reply.then(forget, forget);
    return reply;
  }

  async #ask(headers: RawHeaders, body: string | Uint8Array): Promise<ExchangeResult> {
    const { promise, resolve } = Promise.withResolvers<ExchangeResult>();
    const fields = headers.flatMap((name, index) =>
      index % 2 === 0 && !name.startsWith(":") ? [[name, headers[index + 1] ?? ""]] : [],
    );
    const signal = AbortSignal.timeout(this.#timeoutMs);
    const ask = this.#isSecure ? httpsRequest : httpRequest;
    try {
      const request = ask({
        ...this.#origin,
        method: pseudoHeader(headers, ":method"),
        path: pseudoHeader(headers, ":path"),
        headers: { ...Object.fromEntries(fields), "content-length": Buffer.byteLength(body) },
        agent: this.#agent,
        signal,
      });
      request.on("response", (response) => void readResponse(response).then(resolve));
      request.on("error", (error) => resolve(noResponse(signal.aborted ? undefined : codeOf(error))));
      request.end(body);
    } catch (error) {
      // Node does not send such a path or header.
      return { answered: false, cause: "lost", reason: codeOf(error) ?? "the request cannot be made" };
    }
    return promise;
  }

  /** Lets requests in flight finish, then closes the connections. */
  async close(): Promise<void> {
    await Promise.all(this.#open);
    this.#agent.destroy();
  }
}

function pseudoHeader(headers: RawHeaders, name: string): string {
  return headers[headers.indexOf(name) + 1] ?? "";
}

/** @param code of the error; undefined: it took too long */
function noResponse(code: string | undefined = "ETIMEDOUT"): NoResponse {
  if (code === "ETIMEDOUT") return { answered: false, cause: "timeout", reason: "no answer in time" };
  return { answered: false, cause: unreachable.test(code) ? "unreachable" : "lost", reason: code };
}

/** What was answered, also if it breaks off: the status says what became of the message. */
async function readResponse(response: IncomingMessage): Promise<ProviderResponse> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of response) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > maxBodyBytes) break;
    }
  } catch {
    // It broke off.
  }
  return {
    answered: true,
    status: response.statusCode ?? 0,
    header(name) {
      const value = response.headers[name];
      return typeof value === "string" ? value : undefined;
    },
    text: () => Buffer.concat(chunks).subarray(0, maxBodyBytes).toString(),
  };
}
