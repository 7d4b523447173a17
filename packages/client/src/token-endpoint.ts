/** The OAuth operations of auth: one request, with the client's authentication and a proof. */
import type { paths } from "@gatepost/contracts/auth";
import { baseOf, basic, type ClientCredentials, call } from "./call.ts";
import { proofOf, type Signer } from "./dpop.ts";
import { OAuthError } from "./errors.ts";
import { base64url, type Platform } from "./platform.ts";

export interface AuthAddress {
  /** The base URL of auth, such as `https://api.example.com/api/auth`. */
  readonly authUrl: string;
  /** Auth's `OAUTH_SERVER_ISSUER`, where it differs from `authUrl`: proofs name it. */
  readonly issuer?: string | undefined;
  readonly client: ClientCredentials;
  /** The key that the session is bound to. A public client needs one. */
  readonly signer?: Signer | undefined;
}

const pathOf = {
  generateTokens: "/oauth2/v1/tokens",
  revokeToken: "/oauth2/v1/revoke",
  challengeAuthorization: "/oauth2/v1/authorize-challenge",
} as const satisfies Record<string, keyof paths>;
type Form = Readonly<Record<string, string | undefined>>;

/** Calls one operation, and again where a proof is refused, but for a refresh. @throws OAuthError where auth refuses, UnavailableError where another try may succeed */
export type Post = (
  operation: keyof typeof pathOf,
  form: Form,
  headers?: Readonly<Record<string, string>>,
) => ReturnType<typeof call>;

const proofErrors: ReadonlySet<string> = new Set(["use_dpop_nonce", "invalid_dpop_proof"]);

/** Once more where the proof was refused: one with another nonce, or of another moment, may be taken. */
export async function provenAgain<T>(act: () => Promise<T>): Promise<T> {
  return act().catch((error: unknown) => {
    if (error instanceof OAuthError && proofErrors.has(error.code)) return act();
    throw error;
  });
}

export function createPost(address: AuthAddress, platform: Platform): Post {
  const authUrl = baseOf(address.authUrl);
  const { issuer = authUrl, client, signer } = address;
  const { clientId, clientSecret } = client;
  // The latest one that auth has given: proofs with it need no right clock.
  let nonce: string | undefined;

  async function once(path: string, form: Form, own: Readonly<Record<string, string>>) {
    const body = new URLSearchParams();
    if (clientSecret === undefined) body.append("client_id", clientId);
    for (const [name, value] of Object.entries(form)) if (value !== undefined) body.append(name, value);
    const headers = new Headers({ accept: "application/json", ...own });
    if (clientSecret !== undefined) headers.set("authorization", basic(clientId, clientSecret));
    if (signer) {
      const id = base64url(platform.random(12));
      const proven = { method: "POST", url: issuer + path, nonce, now: platform.now(), id };
      headers.set("dpop", await proofOf(signer, proven));
    }
    return call(platform, authUrl + path, { method: "POST", headers, body }, undefined, (response) => {
      nonce = response.headers.get("dpop-nonce") ?? nonce;
    });
  }

  return (operation, form, headers = {}) => {
    const act = () => once(pathOf[operation], form, headers);
    // Before a refresh is repeated, the store has to be read: whoever refreshes does both.
    return form["grant_type"] === "refresh_token" ? act() : provenAgain(act);
  };
}
