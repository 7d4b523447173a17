/** A certificate that is replaced on disk while a server runs. */
import { expect, onTestFinished, test, vi } from "vitest";
import { type Certificate, followCertificate } from "../../../src/platform/http/certificate.ts";
import { captureLog } from "../../support/captured-log.ts";
import {
  localhostCertificate as first,
  nextLocalhostCertificate as second,
} from "../../support/localhost-certificate.ts";

test("is used once it is a pair, and what cannot be used is said once, and ends nothing", () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  let found: { value: Certificate } | { problem: string } = { value: first };
  const used: Certificate[] = [];
  const use = vi.fn((one: Certificate) => void used.push(one));
  const { logger, lines } = captureLog();
  const stop = followCertificate({ first, read: () => found, use, logger, lookMs: 1 });
  const look = (times = 5) => vi.advanceTimersByTime(times);
  look();
  expect([used, lines()]).toEqual([[], []]);
  use.mockImplementationOnce(() => {
    throw new Error("key too small");
  });
  found = { value: second };
  look();
  expect(used).toEqual([second]);
  for (const problem of ["TLS_KEY_FILE is other", "TLS_KEY_FILE is none"]) {
    found = { problem };
    look();
  }
  found = { value: second };
  look();
  found = { problem: "TLS_KEY_FILE is none" };
  look();
  expect(used).toEqual([second]);
  const kept = (why: string) => ({
    level: "warn",
    msg: `The certificate cannot be read again, so the last one is kept: ${why}`,
  });
  expect(lines()).toMatchObject([
    kept("Error: key too small"),
    { level: "info", msg: "The certificate was replaced", validTo: "2120-01-01T06:35:11.000Z" },
    kept("TLS_KEY_FILE is other"),
    kept("TLS_KEY_FILE is none"),
    kept("TLS_KEY_FILE is none"),
  ]);
  // Renewed for the same key, as many tools do.
  const renewed = { ...second, cert: first.cert };
  found = { value: renewed };
  look();
  expect(used).toEqual([second, renewed]);
  stop();
  found = { value: first };
  look();
  expect(used).toEqual([second, renewed]);
});
