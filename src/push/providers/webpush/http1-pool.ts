/** Connections to one origin over HTTP/1.1, for push services without HTTP/2; else as {@link Http2Pool}. */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { type LookupFunction, Socket } from "node:net";
import { urlToHttpOptions } from "node:url";
import { codeOf } from "../../../platform/base/error-code.ts";
import type { Fields, RequestHead } from "../../../platform/http2/connection.ts";
import {
  type ExchangeResult,
  maxBodyBytes,
  type NoResponse,
  type PeerResponse,
} from "../../../platform/http2/exchange.ts";
import { configuredLookup } from "../../../platform/http2/lookup.ts";
import { openSocket } from "../../../platform/http2/socket.ts";

/** Error codes of connecting and of TLS, with which nothing was sent. */
const unreachable = /^(?:ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ERR_TLS_.*|.*CERT.*)$/;

interface Http1PoolOptions {
  readonly origin: string;
  /** The most connections at once, and so the most requests. */
  readonly maxSockets: number;
  /** How the host is looked up; as one that the settings name unless given. */
  readonly lookup?: LookupFunction | undefined;
  /** Milliseconds without a request, after which a connection is closed. */
  readonly idleMs: number;
  /** Milliseconds from the request to the end of the response, including the wait for a connection. */
  readonly timeoutMs: number;
}

export class Http1Pool {
  /** The target of every request, without the path: in a URL, one such as `//host` would name a host. */
  readonly #origin: ReturnType<typeof urlToHttpOptions>;
  readonly #timeoutMs: number;
  readonly #agent: HttpAgent;
  readonly #isSecure: boolean;
  readonly #open = new Set<Promise<ExchangeResult>>();
  /** How many more requests may be made now: the agent does not count the connections that it still waits for. */
  #room: number;
  readonly #waiting: (() => void)[] = [];

  constructor({ origin, maxSockets, idleMs, timeoutMs, lookup = configuredLookup }: Http1PoolOptions) {
    this.#origin = urlToHttpOptions(new URL(origin));
    this.#timeoutMs = timeoutMs;
    this.#room = maxSockets;
    this.#isSecure = origin.startsWith("https:");
    const options = {
      keepAlive: true,
      maxSockets,
      timeout: Math.max(idleMs, timeoutMs),
    };
    this.#agent = this.#isSecure ? new HttpsAgent(options) : new HttpAgent(options);
    this.#agent.createConnection = (_, done) => {
      openSocket({ origin, ca: undefined, lookup }, AbortSignal.timeout(timeoutMs), "http/1.1").then(
        (socket) => done?.(null, socket),
        // The agent looks at the error alone; its type wants a stream beside it.
        (error) => done?.(error, new Socket()),
      );
      return undefined;
    };
  }

  /** Sends a request. Never rejects. */
  request(head: RequestHead, body: string | Uint8Array): Promise<ExchangeResult> {
    const result = this.#send(head, body);
    this.#open.add(result);
    const forget = () => this.#open.delete(result);
    void result.then(forget, forget);
    return result;
  }

  async #send({ path, shared, own = [] }: RequestHead, body: string | Uint8Array): Promise<ExchangeResult> {
    const { promise, resolve } = Promise.withResolvers<ExchangeResult>();
    const all = [...shared, ...own];
    const fields = all.flatMap((name, index) =>
      index % 2 === 0 && !name.startsWith(":") ? [[name, all[index + 1] ?? ""]] : [],
    );
    const until = performance.now() + this.#timeoutMs;
    const signal = AbortSignal.timeout(this.#timeoutMs);
    const sendRequest = this.#isSecure ? httpsRequest : httpRequest;
    // It takes no longer than the timeout, which those before it reach earlier.
    if (this.#room === 0) await new Promise<void>((begin) => this.#waiting.push(begin));
    else this.#room -= 1;
    try {
      // In a process that was frozen meanwhile the signal comes late, and others may send the message by now.
      if (performance.now() >= until) return noResponse();
      const request = sendRequest({
        ...this.#origin,
        method: methodIn(shared),
        path,
        headers: { ...Object.fromEntries(fields), "content-length": Buffer.byteLength(body) },
        agent: this.#agent,
        signal,
      });
      request.on("response", (response) => void readResponse(response).then(resolve));
      request.on("error", (error) => resolve(noResponse(signal.aborted ? undefined : codeOf(error))));
      request.end(body);
      return await promise;
    } catch (error) {
      // Node rejects this path or header.
      return { responded: false, cause: "lost", reason: codeOf(error) ?? "the request cannot be made" };
    } finally {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#room += 1;
    }
  }

  /** Lets requests in flight finish, then closes the connections. */
  async close(): Promise<void> {
    await Promise.all(this.#open);
    this.#agent.destroy();
  }
}

function methodIn(fields: Fields): string {
  return fields[fields.indexOf(":method") + 1] ?? "";
}

/** @param code of the error; undefined: the timeout has passed */
function noResponse(code: string | undefined = "ETIMEDOUT"): NoResponse {
  if (code === "ETIMEDOUT") return { responded: false, cause: "timeout", reason: "response timeout" };
  return { responded: false, cause: unreachable.test(code) ? "unreachable" : "lost", reason: code };
}

/** Reads the response, even if its body breaks off: the status alone decides the outcome of the message. */
async function readResponse(response: IncomingMessage): Promise<PeerResponse> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of response) {
      chunks.push(chunk);
      size += chunk.length;
      if (size > maxBodyBytes) break;
    }
  } catch {
    // The body broke off; what has been read is kept.
  }
  const body = () => Buffer.concat(chunks).subarray(0, maxBodyBytes);
  return {
    responded: true,
    status: response.statusCode ?? 0,
    isComplete: response.complete || size > maxBodyBytes,
    header(name) {
      const value = response.headers[name];
      return typeof value === "string" ? value : undefined;
    },
    trailer: (name) => response.trailers[name],
    body,
    text: () => body().toString(),
  };
}
