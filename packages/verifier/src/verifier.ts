/** Lets only requests with a good access token through to an API. */
import type { AccessToken } from "./access-token.ts";
import { UnavailableError } from "./auth-server.ts";
import { createKeysCheck } from "./keys.ts";
import { createRefusals, type Refusal } from "./refusal.ts";
import { checkRequirements, type Requirements } from "./requirements.ts";
import { createStrictCheck, type IntrospectionOptions } from "./strict.ts";

export type { AccessToken } from "./access-token.ts";
export type { UnavailableError } from "./auth-server.ts";
export type { Refusal, RefusalCode } from "./refusal.ts";
export type { Requirements } from "./requirements.ts";
export type { IntrospectionOptions } from "./strict.ts";

interface CommonOptions {
  /** The `iss` of tokens, exactly as auth has it in `OAUTH_SERVER_ISSUER`. */
  readonly issuer: string;
  /** This API's name in `aud`: one of the `audiences` of the clients that may call it. */
  readonly audience: string;
  /** Called when auth could not be asked or could not say, for a log: at most once a second. It gets no token. */
  readonly onUnavailable?: (error: UnavailableError) => void;
  /** What is used of the platform; for tests. `now` is in milliseconds since the epoch, `monotonic` since any moment. */
  readonly platform?: {
    readonly fetch?: typeof fetch;
    readonly now?: () => number;
    readonly monotonic?: () => number;
  };
}

/**
 * Asks auth about each token: a token that was revoked before the request came is refused. Nothing is cached, and no
 * request shares another's call. While auth is away, all are refused with 503.
 */
export interface StrictOptions extends CommonOptions {
  readonly mode: "strict";
  readonly introspection: IntrospectionOptions;
}

/**
 * Checks tokens by auth's key set: a revocation is not seen before `exp`. While auth is away, the keys that are known
 * serve on.
 */
export interface KeysOptions extends CommonOptions {
  readonly mode: "keys";
  /** The header's `typ`, as auth has it in `ACCESS_TOKEN_TYPE`; `at+jwt` unless given. */
  readonly type?: string;
  /** The address of the key set, where it differs from what the issuer's metadata say. */
  readonly jwksUrl?: string;
}

export type VerifierOptions = StrictOptions | KeysOptions;

/** Either a token, or the refusal that the caller is to get. */
export type Outcome =
  | { readonly token: AccessToken; readonly refusal?: never }
  | { readonly token?: never; readonly refusal: Refusal };

export interface Verifier {
  /**
   * Checks the value of an Authorization header.
   * @returns never a token that was not checked; `unavailable` where that cannot be done. Never rejects.
   * @throws TypeError, at once, for requirements that are none, which `bearer` has thrown before
   */
  verify(authorization: string | null | undefined, requirements?: Requirements): Promise<Outcome>;
}

/** RFC 6750 section 2.1, at any length that auth's own tokens have. */
const tokenText = /^[A-Za-z0-9._~+/-]{1,8192}=*$/;

/** @throws TypeError for options that cannot work */
export function createVerifier(options: VerifierOptions): Verifier {
  checkOptions(options);
  const { onUnavailable = () => undefined, platform } = options;
  let reportedAt = Number.NEGATIVE_INFINITY;
  const surroundings = {
    fetch: platform?.fetch ?? ((...request) => fetch(...request)),
    now: platform?.now ?? (() => Date.now()),
    monotonic: platform?.monotonic ?? (() => performance.now()),
    onUnavailable: report,
  };
  const check =
    options.mode === "strict"
      ? createStrictCheck({ ...options, ...surroundings })
      : createKeysCheck({
          ...{ ...options, ...surroundings, jwksUrl: options.jwksUrl },
          // Without one, every JWT that the key has signed would be taken.
          type: options.type || "at+jwt",
        });
  const refusals = createRefusals(options.audience);

  /** What the log throws does not keep a request from its refusal. */
  function report(error: UnavailableError): void {
    const now = surroundings.monotonic();
    if (now < reportedAt + 1_000) return;
    reportedAt = now;
    new Promise((resolve) => resolve(onUnavailable(error))).catch(() => undefined);
  }

  async function outcomeOf(token: string, { scopes = [], clients = false }: Requirements): Promise<Outcome> {
    try {
      const found = await check(token);
      if (!found || (found.sub === found.clientId && !clients)) return { refusal: refusals.invalidToken };
      const isEnough = scopes.every((scope) => found.scopes.includes(scope));
      return isEnough ? { token: found } : { refusal: refusals.insufficientScope(scopes) };
    } catch (cause) {
      const error =
        cause instanceof UnavailableError
          ? cause
          : new UnavailableError("The token could not be checked", { cause });
      report(error);
      return { refusal: refusals.unavailable(error.retryAfterSeconds) };
    }
  }

  return {
    verify(authorization, requirements = {}) {
      checkRequirements(requirements);
      const [, token] = /^bearer +(.*)$/i.exec(authorization ?? "") ?? [];
      if (token === undefined) return Promise.resolve({ refusal: refusals.noToken });
      if (!tokenText.test(token)) return Promise.resolve({ refusal: refusals.invalidToken });
      return outcomeOf(token, requirements);
    },
  };
}

/** For those who write JavaScript, or whose environment lacks a variable. */
function checkOptions(options: VerifierOptions): void {
  const { issuer, audience } = options;
  if (!/^https?:/.test(issuer) || !URL.canParse(issuer))
    throw new TypeError("issuer must be auth's OAUTH_SERVER_ISSUER, a URL of http or https");
  if (!/^[\x21-\x7e]+$/.test(audience ?? ""))
    throw new TypeError("audience must be this API's name in the audiences of auth's clients");
  if (options.mode !== "strict" && options.mode !== "keys")
    throw new TypeError('mode must be "strict" (asks auth each time) or "keys" (sees no revocation)');
  if (options.mode === "strict" && !(options.introspection?.clientId && options.introspection.clientSecret))
    throw new TypeError(
      "mode strict needs introspection: the clientId and clientSecret of this API's client",
    );
}
