/** The built-in OTP verifier, over HTTP; every response is validated against openapi/otp-verifier.yaml. */
import { generateKeyPairSync, type KeyObject } from "node:crypto";
import { decodeProtectedHeader, importSPKI, jwtVerify } from "jose";
import { beforeAll, describe, expect, it } from "vitest";
import { createVerifyOtpProof } from "../../../src/auth/grants/otp-proof.ts";
import { createOtpChecks } from "../../../src/auth/grants/otp-verifier-client.ts";
import { createSignOtpProof } from "../../../src/development/otp-verifier/otp-proof-signer.ts";
import { createOtpVerifier } from "../../../src/development/otp-verifier/service.ts";
import { createVerifications } from "../../../src/development/otp-verifier/verifications.ts";
import { RequestContext } from "../../../src/platform/base/request-context.ts";
import { type CapturedLog, captureLog } from "../../support/captured-log.ts";
import { readContract } from "../../support/contract-check.ts";
import { type ServedApp, serveApp } from "../../support/http-app.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";

/** Both halves as PEM texts. */
function pems({ privateKey, publicKey }: { privateKey: KeyObject; publicKey: KeyObject }) {
  return {
    privateKey: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    publicKey: publicKey.export({ type: "spki", format: "pem" }).toString(),
  };
}
const keys = pems(generateKeyPairSync("ec", { namedCurve: "P-256" }));
const contract = readContract("otp-verifier");

/** Moved by the tests. */
const clock = {
  ms: Date.parse("2026-11-21T09:00:00.000Z"),
  now: () => clock.ms,
  advance(seconds: number) {
    clock.ms += seconds * 1000;
  },
};

let log: CapturedLog;
let served: ServedApp;
const cleanup = suiteCleanup();
beforeAll(async () => {
  log = captureLog();
  const verifier = await createOtpVerifier({
    issuer: "otp-verifier",
    privateKey: keys.privateKey,
    logger: log.logger,
    observer: { serves() {}, completed() {} },
    clock,
    validateResponses: true,
  });
  served = await serveApp(verifier.http.app);
  cleanup.defer(() => served.close());
});

async function answerOf(operation: string, response: Response) {
  const text = await response.text();
  contract.check(operation, response, text);
  return { status: response.status, headers: response.headers, body: JSON.parse(text) };
}
async function post(operation: string, path: string, body: object | string, type = "application/json") {
  const response = await fetch(`${served.origin}/otp-verifier/v1/verifications${path}`, {
    method: "POST",
    headers: { "content-type": type },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  return answerOf(operation, response);
}
const start = (phone: string) => post("startVerification", "", { phone });
const confirm = (phone: string, code: string) => post("confirmVerification", "/confirm", { phone, code });
const check = async (phone: string, code?: string) =>
  (await post("checkVerification", "/check", { phone, ...(code !== undefined && { code }) })).body;
async function messages(phone: string) {
  const query = new URLSearchParams({ phone });
  return answerOf("listMessages", await fetch(`${served.origin}/otp-verifier/v1/messages?${query}`));
}

let last = 0;
/** A phone that no other test uses. */
function newPhone(): string {
  last += 1;
  return `+1202555${String(last).padStart(4, "0")}`;
}
/** Sends a code and returns it. */
async function codeFor(phone: string): Promise<string> {
  expect((await start(phone)).status).toBe(202);
  return (await messages(phone)).body.messages[0].code;
}
/** A code that is wrong, and as long as the right one. */
const wrong = (code: string) => String((Number(code) + 1) % 1_000_000).padStart(6, "0");

describe("startVerification", () => {
  it("shows a code of six digits at the terminal, as the message would read", async () => {
    const phone = newPhone();
    const { status, body } = await start(phone);
    expect([status, body]).toEqual([202, { expiresIn: 300 }]);
    const { code } = (await messages(phone)).body.messages[0];
    expect(code).toMatch(/^\d{6}$/);
    const line = log.lines().findLast(({ sms }) => sms === true);
    const masked = `+1***${phone.slice(-2)}`;
    expect(line).toMatchObject({ level: "info", msg: `Text message to ${masked}: your code is ${code}` });
  });

  it("voids the code that was sent before", async () => {
    const phone = newPhone();
    const before = await codeFor(phone);
    let after = await codeFor(phone);
    while (after === before) after = await codeFor(phone);
    expect(await check(phone, before)).toEqual({ verified: false });
    expect(await check(phone, after)).toEqual({ verified: true });
  });

  it("sends five codes a minute to a phone, then says how long to wait", async () => {
    const phone = newPhone();
    for (let sent = 0; sent < 5; sent++) {
      expect((await start(phone)).status).toBe(202);
      clock.advance(5);
    }
    const refused = await start(phone);
    expect(refused.status).toBe(429);
    expect(refused.headers.get("retry-after")).toBe("35");
    expect(refused.body).toMatchObject({ code: "too_many_requests", status: 429 });
    expect((await start(newPhone())).status).toBe(202);
    clock.advance(35);
    expect((await start(phone)).status).toBe(202);
    expect((await start(phone)).status).toBe(429);
  });
});

describe("checkVerification", () => {
  it("takes the right code once", async () => {
    const phone = newPhone();
    const code = await codeFor(phone);
    expect(await check(phone, code)).toEqual({ verified: true });
    expect(await check(phone, code)).toEqual({ verified: false });
  });

  it("takes it once however many ask at once", async () => {
    const phone = newPhone();
    const code = await codeFor(phone);
    const responses = await Promise.all(Array.from({ length: 20 }, () => check(phone, code)));
    expect(responses.filter(({ verified }) => verified)).toHaveLength(1);
  });

  it("accepts the phone in every spelling, and the code in one", async () => {
    const phone = newPhone();
    const code = await codeFor(phone);
    const spelling = `\u202a\uff0b1 (202) 555-${phone.slice(-4)}\u202c\n`;
    for (const other of [`${code} `, code.slice(1), `${code}0`, `${code}\u0660`]) {
      expect(await check(spelling, other)).toEqual({ verified: false });
    }
    expect(await check(spelling, code)).toEqual({ verified: true });
  });

  it("voids the code at the fifth wrong try, and not before", async () => {
    const phone = newPhone();
    const first = await codeFor(phone);
    for (let tries = 0; tries < 4; tries++)
      expect(await check(phone, wrong(first))).toEqual({ verified: false });
    expect(await check(phone, first)).toEqual({ verified: true });
    const second = await codeFor(phone);
    for (let tries = 0; tries < 3; tries++) await check(phone, wrong(second));
    for (let tries = 0; tries < 2; tries++) await confirm(phone, wrong(second));
    expect(await check(phone, second)).toEqual({ verified: false });
  });

  it("takes a code for 300 seconds", async () => {
    const phone = newPhone();
    const first = await codeFor(phone);
    clock.advance(299);
    expect(await check(phone, first)).toEqual({ verified: true });
    const second = await codeFor(phone);
    clock.advance(300);
    expect(await check(phone, second)).toEqual({ verified: false });
  });

  it("is false for a phone that nothing was sent to, and for another's code", async () => {
    const code = await codeFor(newPhone());
    expect(await check(newPhone(), code)).toEqual({ verified: false });
    expect(await check(newPhone())).toEqual({ verified: false });
  });
});

describe("checkVerification without a code", () => {
  it("is true once after a confirmed code", async () => {
    const phone = newPhone();
    await confirm(phone, await codeFor(phone));
    const responses = await Promise.all(Array.from({ length: 10 }, () => check(phone)));
    expect(responses.filter(({ verified }) => verified)).toHaveLength(1);
  });

  it("is true for 120 seconds, also if a new code was sent meanwhile", async () => {
    const phone = newPhone();
    await confirm(phone, await codeFor(phone));
    await start(phone);
    clock.advance(119);
    expect(await check(phone)).toEqual({ verified: true });
    await confirm(phone, await codeFor(phone));
    clock.advance(120);
    expect(await check(phone)).toEqual({ verified: false });
  });

  it("is false after a code that was checked but not confirmed, and after a wrong one", async () => {
    const phone = newPhone();
    await check(phone, await codeFor(phone));
    expect(await check(phone)).toEqual({ verified: false });
    await confirm(phone, wrong(await codeFor(phone)));
    expect(await check(phone)).toEqual({ verified: false });
  });
});

describe("confirmVerification", () => {
  it("answers the right code with a proof, once", async () => {
    const phone = newPhone();
    const code = await codeFor(phone);
    const { body } = await confirm(phone, code);
    expect(body).toEqual({ verified: true, otpVerificationToken: expect.any(String), expiresIn: 300 });
    expect((await confirm(phone, code)).body).toEqual({ verified: false });
    expect(await check(phone, code)).toEqual({ verified: false });
  });

  it("answers a wrong code without one", async () => {
    const phone = newPhone();
    expect((await confirm(phone, wrong(await codeFor(phone)))).body).toEqual({ verified: false });
  });

  it("proves it in a way that a JWT library and the auth service verify", async () => {
    const phone = newPhone();
    const token: string = (await confirm(phone, await codeFor(phone))).body.otpVerificationToken;
    expect(decodeProtectedHeader(token)).toEqual({ alg: "ES256", typ: "JWT" });
    const key = await importSPKI(keys.publicKey, "ES256");
    const { payload } = await jwtVerify(token, key, {
      issuer: "otp-verifier",
      currentDate: new Date(clock.ms),
    });
    const now = Math.floor(clock.ms / 1000);
    expect(payload).toEqual({
      iss: "otp-verifier",
      sub: phone,
      phone_number: phone,
      jti: expect.stringMatching(/^[0-9a-f-]{36}$/),
      iat: now,
      exp: now + 300,
    });
    const verify = createVerifyOtpProof(
      { issuer: "otp-verifier", audience: undefined, publicKeys: [keys.publicKey], maxSeconds: 600 },
      clock,
    );
    expect(await verify(token, phone)).toMatchObject({ hash: expect.any(Buffer) });
    expect(await verify(token, newPhone())).toBeUndefined();
    clock.advance(300);
    expect(await verify(token, phone)).toBeUndefined();
  });
});

describe("the proof's algorithm", () => {
  it.each([
    ["RS256", pems(generateKeyPairSync("rsa", { modulusLength: 2048 }))],
    ["ES256", keys],
    ["EdDSA", pems(generateKeyPairSync("ed25519"))],
  ])("is %s by the type of the key, and the auth service agrees", async (alg, { privateKey, publicKey }) => {
    const token = await createSignOtpProof({ issuer: "i", privateKey }, clock)("+12025550123");
    expect(decodeProtectedHeader(token).alg).toBe(alg);
    const settings = { issuer: "i", audience: undefined, publicKeys: [publicKey], maxSeconds: 600 };
    const verify = createVerifyOtpProof(settings, clock);
    expect(await verify(token, "+12025550123")).toBeDefined();
  });

  it("is none for a key of another type", () => {
    const { privateKey } = pems(generateKeyPairSync("ec", { namedCurve: "P-384" }));
    expect(() => createSignOtpProof({ issuer: "i", privateKey }, clock)).toThrow("unsupported type");
  });
});

describe("listMessages", () => {
  it("shows the newest first, and no more than ten", async () => {
    const phone = newPhone();
    for (let sent = 0; sent < 11; sent++) {
      await start(phone);
      clock.advance(20);
    }
    const { body } = await messages(` ${phone.slice(1)}`);
    expect(body.messages).toHaveLength(10);
    expect(body.messages[0]).toMatchObject({ phone, sentAt: new Date(clock.ms - 20_000).toISOString() });
    expect(body.messages[9]).toMatchObject({ sentAt: new Date(clock.ms - 200_000).toISOString() });
  });

  it("is empty for a phone that nothing was sent to", async () => {
    expect((await messages(newPhone())).body).toEqual({ messages: [] });
  });
});

describe("input that is not valid", () => {
  const pointers = ({ status, body }: { status: number; body: { errors?: { pointer: string }[] } }) => [
    status,
    body.errors?.map(({ pointer }) => pointer),
  ];
  const bad = [
    "02025550123",
    "+1",
    "+1202555012345678",
    "+999123456789",
    "+1202555CALL",
    "+1 202 555 0123 ext. 5",
  ];

  it.each(bad)("names the phone number %s", async (phone) => {
    expect(pointers(await start(phone))).toEqual([400, ["/body/phone"]]);
    expect(pointers(await confirm(phone, "123456"))).toEqual([400, ["/body/phone"]]);
    expect(pointers(await post("checkVerification", "/check", { phone }))).toEqual([400, ["/body/phone"]]);
    expect(pointers(await messages(phone))).toEqual([400, ["/query/phone"]]);
  });

  it("names what is missing and what is too much", async () => {
    expect(pointers(await post("startVerification", "", {}))).toEqual([400, ["/body/phone"]]);
    const more = { phone: newPhone(), code: "1" };
    expect(pointers(await post("startVerification", "", more))).toEqual([400, ["/body/code"]]);
    expect(pointers(await post("confirmVerification", "/confirm", { phone: newPhone() }))).toEqual([
      400,
      ["/body/code"],
    ]);
    const code = "1".repeat(129);
    expect(pointers(await post("checkVerification", "/check", { phone: newPhone(), code }))).toEqual([
      400,
      ["/body/code"],
    ]);
  });

  it.each([
    ["startVerification", ""],
    ["checkVerification", "/check"],
    ["confirmVerification", "/confirm"],
  ])("%s refuses other methods, media types and large bodies as it declares", async (operation, path) => {
    const url = `${served.origin}/otp-verifier/v1/verifications${path}`;
    const other = await answerOf(operation, await fetch(url));
    expect([other.status, other.headers.get("allow")]).toEqual([405, "POST, OPTIONS"]);
    expect((await post(operation, path, "phone=1", "application/x-www-form-urlencoded")).status).toBe(415);
    expect((await post(operation, path, { phone: "1".repeat(70_000) })).status).toBe(413);
  });

  it("listMessages refuses other methods as it declares", async () => {
    const response = await fetch(`${served.origin}/otp-verifier/v1/messages`, { method: "POST" });
    expect((await answerOf("listMessages", response)).status).toBe(405);
  });
});

describe("the auth service's client", () => {
  it("understands it", async () => {
    const checks = createOtpChecks(`${served.origin}/otp-verifier`);
    const context = new RequestContext(log.logger);
    const phone = newPhone();
    const code = await codeFor(phone);
    expect(await checks.check(phone, wrong(code), context)).toBe(false);
    expect(await checks.check(phone, code, context)).toBe(true);
    expect(await checks.check(phone, undefined, context)).toBe(false);
    await confirm(phone, await codeFor(phone));
    expect(await checks.check(phone, undefined, context)).toBe(true);
  });
});

describe("memory", () => {
  it("holds 10,000 phones; of more, those used longest ago are forgotten", () => {
    const verifications = createVerifications(clock);
    for (let index = 0; index <= 10_000; index++) verifications.start(`+${index}`);
    expect(verifications.messages("+0")).toEqual([]);
    expect(verifications.messages("+1")).toHaveLength(1);
    expect(verifications.messages("+10000")).toHaveLength(1);
  });
});

describe("the document", () => {
  it("declares nothing that was not answered above", () => {
    const declared = contract.operations.flatMap(({ id, statuses }) =>
      statuses.map((status) => `${id} ${status}`),
    );
    expect([...contract.reached].sort()).toEqual(declared.sort());
  });
});
