/** Signs a user in by phone, from an app that has no secret (OAuth 2.0 for First-Party Applications). */
import type { components } from "@gatepost/contracts/auth";
import { OAuthError, UnavailableError } from "./errors.ts";
import { base64url, type Platform, platformOf, repeated } from "./platform.ts";
import type { Session } from "./session.ts";
import { type AuthAddress, createPost } from "./token-endpoint.ts";

export interface SignInOptions extends AuthAddress {
  readonly session: Pick<Session, "begin">;
  /** An attestation of your own back end for the app's key, where the client has `attestationKeys`. */
  readonly attestation?: () => Promise<string>;
  readonly platform?: Partial<Platform>;
}

/** A sign-in that waits for the code. It can be stored, as by a page that may be reloaded meanwhile. */
export interface PendingSignIn {
  readonly authSession: string;
  readonly codeVerifier: string;
  /** From when it was begun, or the code was sent again. */
  readonly expiresInSeconds: number;
  readonly resendAfterSeconds: number;
}

/** For the list of the user's sessions. */
export interface DeviceDescription {
  readonly deviceName?: string;
  readonly metadata?: Readonly<Record<string, unknown>>;
}

export interface SignIn {
  /** Has a code sent to the phone. @param scope less than all that the client may have. @throws as all: OAuthError, UnavailableError */
  begin(phone: string, scope?: string): Promise<PendingSignIn>;
  /** Has another code sent. */
  resend(pending: PendingSignIn): Promise<PendingSignIn>;
  /**
   * Begins the session. After an UnavailableError the same code may be submitted again; no other one has to be sent.
   * @throws OAuthError `insufficient_authorization` for a wrong code; `invalid_session` where it has to be begun anew
   */
  submit(pending: PendingSignIn, otp: string, device?: DeviceDescription): Promise<void>;
}

/** Seconds for which the exchange of a code may be repeated, and more. */
const repeatSeconds = 45;

export function createSignIn(options: SignInOptions): SignIn {
  const { session, attestation } = options;
  const platform = platformOf(options.platform);
  const post = createPost(options, platform);

  async function codeSent(
    codeVerifier: string,
    form: Readonly<Record<string, string | undefined>>,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<PendingSignIn> {
    try {
      await post("challengeAuthorization", form, headers);
    } catch (error) {
      if (!(error instanceof OAuthError) || error.code !== "insufficient_authorization") throw error;
      const body: components["schemas"]["ChallengeError"] = Object(error.body);
      const { auth_session: authSession = form["auth_session"] ?? "" } = body;
      const { auth_session_expires_in: expiresInSeconds = 0, resend_after: resendAfterSeconds = 0 } = body;
      return { authSession, codeVerifier, expiresInSeconds, resendAfterSeconds };
    }
    throw new UnavailableError("Auth has asked for no code.");
  }

  return {
    async begin(phone, scope) {
      const codeVerifier = base64url(platform.random(32));
      const hash = await platform.sha256(new TextEncoder().encode(codeVerifier));
      const headers = attestation && { "oauth-client-attestation": await attestation() };
      const pkce = { code_challenge: base64url(hash), code_challenge_method: "S256" };
      return codeSent(codeVerifier, { response_type: "code", login_hint: phone, scope, ...pkce }, headers);
    },

    resend: ({ authSession, codeVerifier }) => codeSent(codeVerifier, { auth_session: authSession }),

    async submit({ authSession, codeVerifier }, otp, { deviceName, metadata } = {}) {
      // Not repeated: each time that a wrong one is checked counts.
      const proven = { auth_session: authSession, otp };
      const { authorization_code: code } = await post("challengeAuthorization", proven);
      const pair = await repeated(platform, repeatSeconds, () =>
        post("generateTokens", {
          ...{ grant_type: "authorization_code", code, code_verifier: codeVerifier },
          device_name: deviceName,
          metadata: metadata && JSON.stringify(metadata),
        }),
      );
      await session.begin(pair);
    },
  };
}
