/** Proofs of an OTP check where the settings name an audience, and the verifier's keys while they are rotated. */
import { generateKeyPairSync, type KeyObject, randomUUID } from "node:crypto";
import { SignJWT } from "jose";
import { beforeAll, expect, test } from "vitest";
import { createVerifyOtpProof } from "../../../src/auth/grants/otp-proof.ts";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { ErrorKinds } from "../../../src/platform/base/errors.ts";
import { type AuthApi, authApi } from "../../support/auth-api.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

const p256 = () => generateKeyPairSync("ec", { namedCurve: "P-256" });
const [previous, next, other, stranger] = [p256(), p256(), generateKeyPairSync("ed25519"), p256()];
const pem = (key: KeyObject) => key.export({ type: "spki", format: "pem" }).toString();

let api: AuthApi;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const server = await startAuthServer("PGlite", {
    env: {
      OTP_VERIFICATION_TOKEN_AUDIENCE: "auth",
      OTP_VERIFICATION_TOKEN_PUBLIC_KEY: [previous, next, other].map((pair) => pem(pair.publicKey)).join(""),
    },
  });
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
});

async function statusOf(claims: object, signer = next.privateKey, header: object = {}): Promise<number> {
  const { phone } = await api.newIdentity();
  const iat = Math.floor(Date.now() / 1000);
  const alg = signer.asymmetricKeyType === "ed25519" ? "EdDSA" : "ES256";
  const proof = await new SignJWT({
    iss: "otp-verifier",
    phone_number: phone,
    jti: randomUUID(),
    iat,
    ...claims,
  })
    .setProtectedHeader({ alg, ...header })
    .sign(signer);
  const form = { grant_type: "phone_otp_token", phone, otp_verification_token: proof };
  return (await api.token(form)).status;
}

test.each([{}, { aud: "auth" }, { aud: ["auth"] }, { aud: ["billing", "auth"] }])(
  "a proof is taken that names our audience or none: %j",
  async (claims) => {
    expect(await statusOf(claims)).toBe(200);
  },
);

test.each(["billing", "Auth", "", ["billing", "crm"], [], [["auth"]], 5, null, { auth: true }])(
  "a proof is refused whose audience is not ours: %j",
  async (aud) => {
    expect(await statusOf({ aud })).toBe(400);
  },
);

test("a proof is taken that any of the keys has signed, whatever kid it names, and no other", async () => {
  for (const { privateKey } of [previous, next, other]) {
    expect(await statusOf({}, privateKey)).toBe(200);
    expect(await statusOf({}, privateKey, { kid: "2026-11" })).toBe(200);
  }
  expect(await statusOf({}, stranger.privateKey)).toBe(400);
});

test("without keys a proof is unavailable, and not refused", async () => {
  const settings = { issuer: "otp-verifier", audience: undefined, publicKeys: [], maxSeconds: 600 };
  await expect(createVerifyOtpProof(settings, systemClock)("a.b.c", "+12025550123")).rejects.toMatchObject({
    kind: ErrorKinds.unavailable,
    cause: new Error("OTP_VERIFICATION_TOKEN_PUBLIC_KEY is not set"),
  });
});
