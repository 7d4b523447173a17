/** One HTTP request, of which each outcome is either the body or an error of this package. */
import { errorOf, GatepostError, UnavailableError } from "./errors.ts";
import type { Platform } from "./platform.ts";

/** Milliseconds after which a request counts as lost, its body included. */
const timeoutMs = 10_000;

/** A client with a secret lives in a back end. An app is a public client: it has none, and binds its sessions to a key. */
export interface ClientCredentials {
  readonly clientId: string;
  readonly clientSecret?: string;
}

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
  if (signal?.aborted) throw signal.reason;
  const controller = new AbortController();
  const abort = () => controller.abort(signal?.reason);
  signal?.addEventListener("abort", abort);
  const timer = setTimeout(() => controller.abort(new Error("It took too long")), timeoutMs);
  try {
    const response = await fetch(url, {
      ...{ ...init, redirect: "error", credentials: "omit" },
      signal: controller.signal,
    });
    onResponse?.(response);
    const text = await response.text();
    const isJson = /[/+]json\b/.test(response.headers.get("content-type") ?? "");
    if (!response.ok) throw errorOf(response, isJson ? parsed(text) : undefined);
    return text === "" ? undefined : JSON.parse(text);
  } catch (cause) {
    if (cause instanceof GatepostError || signal?.aborted) throw cause;
    throw new UnavailableError(`${new URL(url).host} gave no complete response.`, { cause });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
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
