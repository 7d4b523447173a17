/** The headers that a collector asks for, as OpenTelemetry writes them. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { resolveTracingSettings } from "../../../src/platform/observability/tracing-settings.ts";

function read(env: Record<string, string>) {
  const OTEL_EXPORTER_OTLP_ENDPOINT = "https://collector.example.com";
  return resolveTracingSettings({ OTEL_EXPORTER_OTLP_ENDPOINT, ...env }, { environment: "production" });
}

test.each([
  ["api-key=secret", { "api-key": "secret" }],
  ["Authorization=Basic%20YTpi", { Authorization: "Basic YTpi" }],
  ["a=1, b = 2==,c=", { a: "1", b: "2==", c: "" }],
])("%s are headers", (text, headers) => {
  expect(read({ OTEL_EXPORTER_OTLP_HEADERS: text }).value?.headers).toEqual(headers);
});

test.each(["k735153", "a:k735153", "api key=k735153", "a=%ff", "a=1,,b=k735153", "a=\u00e9"])(
  "%s are none, and are not quoted",
  (text) => {
    const { problems } = read({ OTEL_EXPORTER_OTLP_HEADERS: text });
    expect(problems).toMatchObject([{ name: "OTEL_EXPORTER_OTLP_HEADERS" }]);
    expect(JSON.stringify(problems)).not.toContain(text);
  },
);

test("they may be in a file, as any secret", () => {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  writeFileSync(join(directory, "headers"), "api-key=secret\n");
  const { value } = read({ OTEL_EXPORTER_OTLP_HEADERS_FILE: join(directory, "headers") });
  expect(value?.headers).toEqual({ "api-key": "secret" });
});
