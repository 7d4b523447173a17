/** The built-in OTP verifier as an app and a person with a phone use it. */
import { expect } from "vitest";

export interface OtpVerifierUser {
  /** Has a code sent to the phone and reads it there. */
  send(phone: string): Promise<string>;
  /** Passes a check, and answers the proof. */
  prove(phone: string): Promise<string>;
}

/** @param origin of the server that has the verifier built in */
export function otpVerifier(origin: string): OtpVerifierUser {
  const base = `${origin}/otp-verifier/v1`;

  async function post(path: string, json: object, status: number): Promise<Record<string, unknown>> {
    const headers = { "content-type": "application/json" };
    const response = await fetch(`${base}/${path}`, { method: "POST", headers, body: JSON.stringify(json) });
    const text = await response.text();
    expect(response.status, text).toBe(status);
    return JSON.parse(text);
  }

  async function send(phone: string): Promise<string> {
    await post("verifications", { phone }, 202);
    const response = await fetch(`${base}/messages?phone=${encodeURIComponent(phone)}`);
    const { messages } = JSON.parse(await response.text());
    return String(messages[0].code);
  }
  return {
    send,
    async prove(phone) {
      const { otpVerificationToken } = await post(
        "verifications/confirm",
        { phone, code: await send(phone) },
        200,
      );
      return String(otpVerificationToken);
    },
  };
}
