import { randomInt } from "node:crypto";
import { expect } from "vitest";
import { waitFor } from "./wait-for.ts";

/** Limits under which tests can ask for codes as they like. */
export const generousLimits = {
  OTP_RESEND_SECONDS: "1",
  OTP_ADDRESS_LIMIT: "1000",
  OTP_NETWORK_LIMIT: "1000",
};

let last = randomInt(100);

/** A number of a mobile phone, which may get codes. A hundred in a row differ in what the log shows of them. */
export function newMobilePhone(): string {
  last = (last + 1) % 100;
  return `+49151${randomInt(100_000, 999_999)}${String(last).padStart(2, "0")}`;
}

/** The codes that tests have had. */
const had = new Set<string>();

/** The next one-time code that a phone has got, from the log of development mode, which masks the number. */
export async function sentCode(servers: readonly { logs(): string }[], phone: string): Promise<string> {
  const text = new RegExp(`Text message to \\+49\\*\\*\\*${phone.slice(-2)}: Your code is (\\d{6})`, "g");
  let code: string | undefined;
  await waitFor(() => {
    const sent = servers.flatMap((server) =>
      [...server.logs().matchAll(text)].map(([, digits = ""]) => digits),
    );
    code = sent.find((digits) => !had.has(phone + digits));
    expect(code, "a code of the phone, in the log").toBeDefined();
  });
  had.add(phone + code);
  return code ?? expect.fail();
}
