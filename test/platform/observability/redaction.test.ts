/** No log line carries a secret, wherever in the call it stands. Each row goes through the real logger. */
import { describe, expect, it } from "vitest";
import type { Logger } from "../../../src/platform/observability/logger.ts";
import { logged } from "../../support/captured-log.ts";
import { stopwatch } from "../../support/stopwatch.ts";

const secret = "s3cr3t-vAlue";
const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl";

describe("a key that names a secret", () => {
  const keys = [
    ...["authorization", "password", "secret", "token", "access_token", "refresh_token", "code", "cookie"],
    ...[
      "otp_verification_token",
      "x-api-key",
      "X-Api-Key",
      "Authorization",
      "Set-Cookie",
      "proxy-authorization",
    ],
    ...["accessToken", "refreshToken", "clientSecret", "client_secret", "DB_PASSWORD", "RSA_PRIVATE_KEY"],
    ...["otp", "verificationCode", "client_assertion", "credentials", "deviceToken", "tokens"],
  ];
  it.each(keys)("hides the value of %s at every depth, in arrays, children and interpolation", (key) => {
    const leaf = { [key]: secret };
    const places: ((logger: Logger) => void)[] = [
      (logger) => logger.info(leaf),
      (logger) => logger.info({ [key]: [secret, { value: secret }] }),
      (logger) => logger.info({ a: { b: { c: { d: { e: leaf } } } } }, "deep"),
      (logger) => logger.info({ list: [[leaf]] }),
      (logger) => logger.info("interpolated %o %j", leaf, leaf),
      (logger) => logger.child(leaf).info("child"),
      (logger) =>
        logger
          .child({ a: 1 })
          .child({ request: { headers: leaf } })
          .info("grandchild"),
      (logger) => logger.setBindings(leaf) ?? logger.info("bindings"),
    ];
    for (const place of places) {
      const { text } = logged(place);
      expect(text).not.toContain(secret);
      expect(text).toContain("[Redacted]");
    }
  });

  it("hides a code that is a number", () => {
    expect(logged((logger) => logger.info({ code: 482_910 })).text).not.toContain("482910");
  });

  it("leaves its neighbours alone", () => {
    const { line } = logged((logger) =>
      logger.info(
        { tokenType: "Bearer", statusCode: 200, jti: "a", scope: "x", password: undefined, ok: true },
        "m",
      ),
    );
    expect(line).toMatchObject({
      tokenType: "Bearer",
      statusCode: 200,
      jti: "a",
      scope: "x",
      ok: true,
      msg: "m",
    });
    expect(line).not.toHaveProperty("password");
  });
});

describe("a phone number", () => {
  it.each([
    ["+15551234567", "+1***67"],
    ["+79161234567", "+7***67"],
    ["+4915112345678", "+49***78"],
    ["+351912345678", "+351***78"],
    ["+2348012345678", "+234***78"],
    ["+49 (151) 123-45 678", "+49***78"],
    ["0151 12345678", "***78"],
    ["1-2-3", "[Redacted]"],
    ["+49151x2345678", "[Redacted]"],
  ])("%s is logged as %s", (phone, masked) => {
    const { text, line } = logged((logger) => logger.child({ phone }).info({ to: { phoneNumber: phone } }));
    expect(line).toMatchObject({ phone: masked, to: { phoneNumber: masked } });
    expect(text).not.toContain(phone);
  });

  it("is masked as a username, while an e-mail address or an id is not", () => {
    const names = ["+4915112345678", "a@example.com", "user-17"];
    const lines = names.map((username) => logged((logger) => logger.info({ username })).line["username"]);
    expect(lines).toEqual(["+49***78", "a@example.com", "user-17"]);
  });
});

describe("the last net, for text", () => {
  it.each([
    ["a JWT", `got\n${jwt} from it`, jwt],
    ["a JWT at the start", jwt, "eyJ"],
    ["a bearer token", "sent Authorization: Bearer c29tZS1vcGFxdWUtdG9rZW4", "c29tZS1v"],
    ["Basic credentials", "sent Basic bW9iaWxlLWFwcDpzZWNyZXQ=", "bW9iaWxl"],
    ["credentials in a URL", "postgres://app:hunter2pass@db/x is away", "hunter2pass"],
    ["a query", "GET /v1/x?a=1&access_token=abcdef&phone=%2B4915112345678", "abcdef"],
    ["a form", "grant_type=password&username=a&password=hunter2pass", "hunter2pass"],
    ["a phone number", "asked for +4915112345678, twice", "15112345678"],
    ["an encoded phone number", "find-by-phone?x=%2B4915112345678", "15112345678"],
  ])("hides %s in messages, values, keys and errors", (_what, text, hidden) => {
    const places: ((logger: Logger) => void)[] = [
      (logger) => logger.info(text),
      (logger) => logger.info("%s", text),
      (logger) => logger.info({ note: text }),
      (logger) => logger.info({ [text]: 1 }),
      (logger) => logger.error(new Error(text)),
      (logger) => logger.error({ err: new Error("outer", { cause: new Error(text) }) }),
    ];
    for (const place of places) expect(logged(place).text).not.toContain(hidden);
  });

  it("is not slowed by hostile text", () => {
    const start = stopwatch();
    for (const piece of ["eyJ", "//a:", "?token", "+123456", "\n    at "]) {
      logged((logger) => logger.info({ note: piece.repeat(20_000) }, piece.repeat(20_000)));
    }
    expect(start()).toBeLessThan(2000);
  });
});
