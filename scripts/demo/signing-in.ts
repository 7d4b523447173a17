/** Parts of the demo: a user is created, and signs in with each grant of a back end. */
import { randomBytes } from "node:crypto";
import { readMessage } from "./app.ts";
import { form } from "./calls.ts";
import { bodyOf, failureOf, Mismatch, statusIs } from "./mismatch.ts";
import type { Check, Stage, TokenPair } from "./stage.ts";

export async function register({ calls, user, credentials, step }: Stage): Promise<void> {
  const headers = { authorization: credentials.internal };

  await step("Create the identity of a new user", async (check) => {
    const body = { ...user, metadata: { locale: "en-GB", newsletter: true } };
    const identity = bodyOf(200, await calls.auth.POST("/v1/identities", { headers, body }));
    check("the identity is as it was sent, and can sign in by one-time code", identity, {
      ...body,
      authenticationTypes: ["PHONE_OTP"],
    });
  });

  await step("Find it by the phone number that the user typed into a form", async (check) => {
    const params = { query: { phone: user.phone } };
    const found = bodyOf(200, await calls.auth.GET("/v1/identities/find-by-phone", { headers, params }));
    check("it is the same identity", found, user);
  });
}

export async function signIn(stage: Stage): Promise<void> {
  const { calls, user, step } = stage;
  const { phone } = user;

  const firstCode = await receiveCode(stage, "Send a one-time code to the phone");
  const proof = await step("Confirm the code, and get a signed proof of it", async (check) => {
    const body = { phone, code: firstCode };
    const confirmed = bodyOf(200, await calls.otp.POST("/v1/verifications/confirm", { body }));
    check("the code was right", confirmed.verified, true);
    if (confirmed.otpVerificationToken === undefined) throw new Mismatch("a proof", "none");
    return confirmed.otpVerificationToken;
  });

  const withProof = { grant_type: "phone_otp_token", phone, otp_verification_token: proof };
  await step("Get tokens with the proof (grant_type=phone_otp_token)", async (check) =>
    isPair(check, bodyOf(200, await tokens(stage, withProof))),
  );

  await step("Present the same proof again: it works only once", async (check) => {
    const refusal = failureOf(400, await tokens(stage, withProof));
    check("it was refused as invalid_grant", refusal.error, "invalid_grant");
  });

  const secondCode = await receiveCode(stage, "Send another code");
  await step("Get tokens with the code itself (grant_type=phone_otp)", async (check) =>
    isPair(check, bodyOf(200, await tokens(stage, { grant_type: "phone_otp", phone, password: secondCode }))),
  );

  await signInWithPassword(stage);

  await step(
    "Get tokens for a user that another service of yours has established (grant_type=auth)",
    async (check) =>
      isPair(check, bodyOf(200, await tokens(stage, { grant_type: "auth", auth_id: user.id }))),
  );
}

async function signInWithPassword(stage: Stage): Promise<void> {
  const { calls, user, credentials, step } = stage;
  const password = `correct horse ${randomBytes(8).toString("base64url")}`;

  await step("Set a password", async () => {
    const headers = { authorization: credentials.internal };
    const params = { path: { id: user.id } };
    statusIs(
      204,
      await calls.auth.PUT("/v1/identities/{id}/password", { headers, params, body: { password } }),
    );
  });

  await step(
    "Get tokens with the password (grant_type=password)",
    async (check) =>
      isPair(
        check,
        bodyOf(200, await tokens(stage, { grant_type: "password", username: user.email, password })),
      ),
    "For applications that already depend on it: RFC 9700 section 2.4 advises against this grant.",
  );
}

/** Two steps: the code is sent, and is read from the built-in verifier. */
async function receiveCode(stage: Stage, heading: string): Promise<string> {
  const { calls, user, step } = stage;
  await step(heading, async () => {
    bodyOf(202, await calls.otp.POST("/v1/verifications", { body: { phone: user.phone } }));
  });
  return readMessage(stage);
}

/** A token request of the back end. */
function tokens({ calls, credentials }: Stage, body: { grant_type: string; [parameter: string]: string }) {
  const headers = { authorization: credentials.backend, ...form };
  return calls.auth.POST("/oauth2/v1/tokens", { headers, body });
}

function isPair(check: Check, pair: TokenPair): void {
  const { token_type, expires_in, refresh_expires_in } = pair;
  check(
    "a Bearer pair; the access token is valid for less time than the refresh token",
    [token_type, expires_in < refresh_expires_in],
    ["Bearer", true],
  );
}
