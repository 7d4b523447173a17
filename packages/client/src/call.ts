/** One HTTP request, of which each outcome is either the body or an error of this package. */
import { errorOf, GatepostError, UnavailableError } from "./errors.ts";
import { type Platform, unlessAborted } from "./platform.ts";

/** Milliseconds after which a request counts as lost, its body included. */
const timeoutMs = 10_000;

/** A client with a secret lives in a back end. An app is a public client: it has none, and binds its sessions to a key. */
export interface ClientCredentials {
  readonly clientId: string;
  readonly clientSecret?: string;
}

/** The base URL of a service, to which paths are added. */
export const baseOf = (url: string) => url.replace(/\/+$/, "");

/** RFC 6749 section 2.3.1: both are encoded as a form's values are. */
export function basic(...parts: readonly string[]): string {
  return `Basic ${btoa(parts.map((part) => new URLSearchParams({ part }).toString().slice(5)).join(":"))}`;
}

/**
 * Redirects are not followed, and no cookies are sent.
 * @returns the response with the JSON of its body, undefined where it has none
 * @throws GatepostError; what `signal` aborts with
 */
export async function call(
  { fetch }: Pick<Platform, "fetch">,
  url: string,
  init: RequestInit,
  signal?: AbortSignal,
  onResponse?: (response: Response) => void,
) {
  const [, , host = ""] = url.split("/");
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(new Error("It took too long")), timeoutMs);

  async function exchange() {
    const own = { redirect: "manual", credentials: "omit", signal: controller.signal } as const;
    const response = await fetch(url, { ...init, ...own });
    onResponse?.(response);
    const text = await response.text();
    if (!response.ok) throw errorOf(host, response, parsed(text));
    return text === "" ? undefined : JSON.parse(text);
  }

  try {
    // Neither Node.js 20 and 22 nor React Native let a signal end a body for sure: whoever waits does not depend on it.
    return await unlessAborted(signal, () => unlessAborted(controller.signal, exchange));
  } catch (cause) {
    controller.abort(cause);
    if (cause instanceof GatepostError || signal?.aborted) throw cause;
    throw new UnavailableError(`${host} gave no complete response.`, { cause });
  } finally {
    clearTimeout(timer);
  }
}

/** Undefined for what a proxy has written. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
