/** An app without a secret, as it signs its user in: a key of its own, proofs, PKCE, real requests. */
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { type CryptoKey, exportJWK, generateKeyPair, type JWTHeaderParameters, SignJWT } from "jose";
import { expect } from "vitest";
import type { components } from "../../gen/openapi/auth.ts";
import type { Answer, AuthApi, CallOptions, TokenPair } from "./auth-api.ts";
import { waitFor } from "./wait-for.ts";

export type ChallengeError = components["schemas"]["ChallengeError"];

export interface KeyPair {
  readonly publicKey: CryptoKey;
  readonly privateKey: CryptoKey;
}

/** A client that an app may be. */
export const appClient = (clientId: string, more: object = {}) => ({
  clientId,
  clientAuthenticationMethods: ["none"],
  grantTypes: ["authorization_code", "refresh_token"],
  scopes: ["profile", "orders"],
  ...more,
});

export const newKeyPair = (algorithm = "ES256"): Promise<KeyPair> =>
  generateKeyPair(algorithm, { extractable: true });

/** What a proof says; each may be replaced, and is left out where it is undefined. */
interface ProofParts {
  readonly header?: object;
  readonly claims?: Readonly<Record<string, unknown>>;
}

/** @param endpoint `htu` */
export async function proofOf(keys: KeyPair, endpoint: string, parts: ProofParts = {}): Promise<string> {
  const jwk = await exportJWK(keys.publicKey);
  const now = Math.floor(Date.now() / 1000);
  const header: JWTHeaderParameters = { typ: "dpop+jwt", alg: "ES256", jwk, ...parts.header };
  const claims = { jti: randomUUID(), htm: "POST", htu: endpoint, iat: now, ...parts.claims };
  return new SignJWT(claims).setProtectedHeader(header).sign(keys.privateKey);
}

export interface PublicApp {
  readonly keys: KeyPair;
  readonly codeVerifier: string;
  /** The request that begins. */
  beginning(phone: string, more?: Record<string, string>): Promise<CallOptions>;
  begin(phone: string, more?: Record<string, string>, headers?: Record<string, string>): Promise<Answer>;
  /** Begins, and returns the request with the right code. */
  withCode(phone: string): Promise<CallOptions>;
  /** Begins, and returns the session. */
  session(phone: string): Promise<string>;
  challenge(form: Record<string, string>, headers?: Record<string, string>): Promise<Answer>;
  token(form: Record<string, string>, headers?: Record<string, string>): Promise<Answer>;
  exchange(code: string): Promise<Answer>;
  refresh(refreshToken: string): Promise<Answer>;
  revoke(token: string): Promise<Answer>;
  /** An authorization code, by the one-time code. */
  code(phone: string): Promise<string>;
  signIn(phone: string): Promise<TokenPair>;
  /** The same app with another key, or that of somebody who has a copy. */
  withKeys(keys: KeyPair): PublicApp;
}

interface Options {
  readonly clientId: string;
  readonly issuer: string;
  readonly keys: KeyPair;
  /** The server of the next request. */
  next(): Pick<AuthApi, "call">;
  /** The one-time code that the phone has got last. */
  otp(phone: string): Promise<string>;
}

export function publicApp(options: Options): PublicApp {
  const { clientId: client_id, issuer, keys, next, otp } = options;
  const codeVerifier = randomBytes(32).toString("base64url");
  const code_challenge = createHash("sha256").update(codeVerifier).digest("base64url");
  const proof = (path: string) => proofOf(keys, `${issuer}/oauth2/v1/${path}`);

  const app: PublicApp = {
    keys,
    codeVerifier,
    async challenge(form, headers = {}) {
      const all = { DPoP: await proof("authorize-challenge"), ...headers };
      return next().call("challengeAuthorization", { form, headers: all });
    },
    async beginning(login_hint, more = {}) {
      const pkce = { code_challenge, code_challenge_method: "S256" };
      const form = { client_id, response_type: "code", login_hint, ...pkce, ...more };
      return { form, headers: { DPoP: await proof("authorize-challenge") } };
    },
    async begin(phone, more = {}, headers = {}) {
      const request = await app.beginning(phone, more);
      const all = { ...request.headers, ...headers };
      return next().call("challengeAuthorization", { ...request, headers: all });
    },
    async withCode(phone) {
      const auth_session = await app.session(phone);
      const headers = { DPoP: await proof("authorize-challenge") };
      return { form: { auth_session, otp: await otp(phone) }, headers };
    },
    async session(phone) {
      let begun: Answer | undefined;
      // A phone that has just got a code gets no other for a second.
      await waitFor(async () => {
        begun = await app.begin(phone);
        expect(begun.status, begun.text).toBe(403);
      });
      const { auth_session }: ChallengeError = Object(begun?.body);
      return auth_session ?? expect.fail(begun?.text);
    },
    async token(form, headers = {}) {
      const all = { DPoP: await proof("tokens"), ...headers };
      return next().call("generateTokens", { form: { client_id, ...form }, headers: all });
    },
    exchange: (code) => app.token({ grant_type: "authorization_code", code, code_verifier: codeVerifier }),
    refresh: (refresh_token) => app.token({ grant_type: "refresh_token", refresh_token }),
    revoke: (token) => next().call("revokeToken", { form: { client_id, token } }),
    async code(phone) {
      const { status, text, body } = await next().call("challengeAuthorization", await app.withCode(phone));
      expect(status, text).toBe(200);
      return (body as components["schemas"]["AuthorizationCode"]).authorization_code;
    },
    async signIn(phone) {
      const { status, text, body } = await app.exchange(await app.code(phone));
      expect(status, text).toBe(200);
      return body as TokenPair;
    },
    withKeys: (others) => publicApp({ ...options, keys: others }),
  };
  return app;
}
