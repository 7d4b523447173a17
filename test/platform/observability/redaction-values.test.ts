/** What the log writes of objects and errors, and that nothing it is given breaks it. */
import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { ServiceError, unavailable } from "../../../src/platform/base/errors.ts";
import { logged } from "../../support/captured-log.ts";

const secret = "s3cr3t-vAlue";

describe("objects", () => {
  it("of unknown classes are named, not looked into", () => {
    const request = new IncomingMessage(new Socket());
    request.headers.authorization = secret;
    const { text, line } = logged((logger) =>
      logger.info({ request, headers: new Headers({ authorization: secret }), bytes: Buffer.from(secret) }),
    );
    expect(line).toMatchObject({ request: "[IncomingMessage]", headers: "[Headers]", bytes: "[Buffer]" });
    expect(text).not.toContain(secret);
    expect(logged((logger) => logger.info(request, "arrived")).line).toMatchObject({ msg: "arrived" });
  });

  it("that are cyclic, deep, huge or hostile do not break the log", () => {
    const cyclic: Record<string, unknown> = { name: "a" };
    cyclic["self"] = cyclic;
    const hostile = Object.defineProperty({}, "x", {
      enumerable: true,
      get: () => {
        throw new Error("no");
      },
    });
    const values = [
      cyclic,
      { list: Array.from({ length: 10_000 }, () => "x") },
      { text: "x".repeat(100_000) },
    ];
    for (const value of [...values, hostile, { big: 10n, symbol: Symbol("s"), date: new Date(Number.NaN) }]) {
      const { line, text } = logged((logger) => logger.info(value, "written"));
      expect(line["msg"]).toBe("written");
      expect(text.length).toBeLessThan(20_000);
    }
  });

  it("of known kinds are written plainly", () => {
    const { line } = logged((logger) =>
      logger.info({ at: new Date(0), url: new URL("https://a.example/p?token=x"), big: 10n, none: null }),
    );
    expect(line).toMatchObject({
      at: "1970-01-01T00:00:00.000Z",
      url: "https://a.example/p",
      big: "10",
      none: null,
    });
  });
});

describe("errors", () => {
  it("carry type, message, code, stack and causes, and no field that is not known to be harmless", () => {
    const cause = Object.assign(new Error("inner"), { code: "ECONNREFUSED", command: { args: [secret] } });
    const error = Object.assign(new Error("outer", { cause }), {
      input: secret,
      config: { headers: [secret] },
    });
    const { text, line } = logged((logger) => logger.error({ err: error, request: 7 }, "failed"));
    expect(text).not.toContain(secret);
    expect(line).toMatchObject({
      level: "error",
      msg: "failed",
      request: 7,
      err: { type: "Error", message: "outer", cause: { message: "inner", code: "ECONNREFUSED" } },
    });
    expect(text).toContain("redaction-values.test.ts");
  });

  it.each([
    ["JSON.parse", () => JSON.parse(`{"password": ${secret}}`)],
    ["Headers", () => new Headers({ authorization: `${secret}\n${secret}` })],
    ["URL", () => new URL(`:${secret}`)],
  ])("of %s do not quote their input", (_name, fail) => {
    try {
      fail();
      expect.unreachable();
    } catch (error) {
      const { text } = logged((logger) => logger.error(error));
      expect(text).not.toContain(secret);
      expect(text).toContain("redaction-values.test.ts");
    }
  });

  it("have no stack line that came with a message", () => {
    const error = new Error(`select x\n    at ${secret}`);
    error.message = "changed";
    const { text } = logged((logger) => logger.error(error));
    expect(text).not.toContain(secret);
  });

  it("of the service carry their kind, and each of an aggregate's is written", () => {
    const error = new AggregateError([unavailable("The cache", new Error("ECONNRESET")), secret], "several");
    const { line, text } = logged((logger) => logger.error(error));
    expect(line).toMatchObject({
      err: {
        errors: [
          { type: ServiceError.name, kind: "unavailable", cause: { message: "ECONNRESET" } },
          "[string]",
        ],
      },
    });
    expect(text).not.toContain(secret);
  });
});
