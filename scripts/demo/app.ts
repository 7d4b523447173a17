/** The user's app, which has no secret: a key of its own whose proofs its requests carry (RFC 9449), and PKCE (RFC 7636). */
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import { type Calls, form } from "./calls.ts";
import { bodyOf, failureOf, Mismatch } from "./mismatch.ts";
import type { Stage, TokenPair } from "./stage.ts";
import { noteSecret } from "./transcript.ts";

/** The development client that an app without a secret is. */
export const appId = "app";

type Parameters = Readonly<Record<string, string>>;

export interface App {
  readonly pkce: { readonly verifier: string; readonly challenge: string };
  challenge(parameters: Parameters): ReturnType<typeof challengeOf>;
  tokens(parameters: Parameters & { grant_type: string }): ReturnType<typeof tokensOf>;
  revoke(token: string): ReturnType<typeof revocationOf>;
}

/** Makes the app's key when its first request needs it. */
export function createApp(calls: Calls): App {
  const verifier = randomBytes(32).toString("base64url");
  noteSecret("code_verifier", verifier);
  let keys: ReturnType<typeof generateKeyPair> | undefined;
  let issuer: Promise<string> | undefined;

  /** The proof is for the address that the metadata have, whichever way leads there. */
  async function headersFor(path: string): Promise<{ DPoP: string; "content-type": string }> {
    keys ??= generateKeyPair("ES256");
    issuer ??= issuerOf(calls);
    const { publicKey, privateKey } = await keys;
    const jwk = await exportJWK(publicKey);
    const DPoP = await new SignJWT({
      jti: randomUUID(),
      htm: "POST",
      htu: `${await issuer}/oauth2/v1/${path}`,
    })
      .setProtectedHeader({ typ: "dpop+jwt", alg: "ES256", jwk })
      .setIssuedAt()
      .sign(privateKey);
    return { DPoP, ...form };
  }

  return {
    pkce: { verifier, challenge: createHash("sha256").update(verifier).digest("base64url") },
    challenge: async (parameters) => challengeOf(calls, await headersFor("authorize-challenge"), parameters),
    tokens: async (parameters) => tokensOf(calls, await headersFor("tokens"), parameters),
    revoke: (token) => revocationOf(calls, token),
  };
}

async function issuerOf({ auth }: Calls): Promise<string> {
  return bodyOf(200, await auth.GET("/.well-known/oauth-authorization-server")).issuer;
}

function challengeOf({ auth }: Calls, headers: Parameters, parameters: Parameters) {
  return auth.POST("/oauth2/v1/authorize-challenge", { headers, body: { client_id: appId, ...parameters } });
}

function tokensOf({ auth }: Calls, headers: Parameters, parameters: Parameters & { grant_type: string }) {
  return auth.POST("/oauth2/v1/tokens", { headers, body: { client_id: appId, ...parameters } });
}

/** The only request of the app that needs no proof. */
function revocationOf({ auth }: Calls, token: string) {
  return auth.POST("/oauth2/v1/revoke", { headers: form, body: { client_id: appId, token } });
}

/** Signs the user in by phone, and shows the session. */
export async function signInFromApp(stage: Stage): Promise<TokenPair> {
  const { app, user, step } = stage;
  const session = await step("The user types the phone number, and the app begins", async (check) => {
    const pkce = { code_challenge: app.pkce.challenge, code_challenge_method: "S256" };
    const beginning = { response_type: "code", login_hint: user.phone, ...pkce };
    const begun = failureOf(403, await app.challenge(beginning));
    if (begun.error === "access_denied")
      throw new Mismatch(
        "a code for a number of the USA",
        "access_denied: OTP_REGIONS of the server lacks US",
      );
    check("a code is on its way", begun.error, "insufficient_authorization");
    if (!("auth_session" in begun) || begun.auth_session === undefined)
      throw new Mismatch("a session", "none");
    return begun.auth_session;
  });
  const otp = await readMessage(stage);
  const code = await step("The user types it, and the app sends it", async () => {
    const right = bodyOf(200, await app.challenge({ auth_session: session, otp }));
    return right.authorization_code;
  });
  const pair = await step(
    "Exchange the authorization code for tokens (grant_type=authorization_code)",
    async (check) => {
      const exchange = { code, code_verifier: app.pkce.verifier, device_name: "Ada's phone" };
      const issued = bodyOf(200, await app.tokens({ grant_type: "authorization_code", ...exchange }));
      check("a pair, for 30 days", issued.refresh_expires_in, 2_592_000);
      return issued;
    },
    "Whoever has stolen the code, or the refresh token later, has neither the verifier nor the key.",
  );
  await showSession(stage, pair);
  return pair;
}

/** The code that the phone has got last, from the built-in verifier. */
export async function readMessage({ calls, user, step }: Stage): Promise<string> {
  return step(
    "Read the text message",
    async (check) => {
      const params = { query: { phone: user.phone } };
      const newest = async () =>
        bodyOf(200, await calls.otp.GET("/v1/messages", { params })).messages[0]?.code ?? "";
      let code = await newest();
      // It is sent after the response to the app.
      for (let attempt = 0; attempt < 40 && code === ""; attempt += 1) {
        await setTimeout(250);
        code = await newest();
      }
      check("the newest message holds a code of six digits", /^\d{6}$/.test(code), true);
      return code;
    },
    "In development mode nothing is sent: messages are shown here and in the server's output.",
  );
}

async function showSession({ calls, step }: Stage, { access_token }: TokenPair): Promise<void> {
  await step("Where is the user signed in? The app shows the list", async (check) => {
    const headers = { authorization: `Bearer ${access_token}` };
    const { content } = bodyOf(200, await calls.auth.GET("/v1/me/authorizations", { headers }));
    check(
      "on this phone, which is the one that asks",
      content.map(({ clientId, deviceName, state, current }) => ({ clientId, deviceName, state, current })),
      [{ clientId: appId, deviceName: "Ada's phone", state: "ACTIVE", current: true }],
    );
  });
}
