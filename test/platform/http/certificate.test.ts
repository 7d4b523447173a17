/** A certificate that is replaced on disk while a server runs. */
import { expect, onTestFinished, test, vi } from "vitest";
import { type Certificate, followCertificate } from "../../../src/platform/http/certificate.ts";
import { captureLog } from "../../support/captured-log.ts";
import {
  localhostCertificate as first,
  nextLocalhostCertificate as second,
} from "../../support/localhost-certificate.ts";

test("is used once two looks have found it, and what cannot be used is said once", () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  let found: { value: Certificate } | { problem: string } = { value: first };
  const used: Certificate[] = [];
  const { logger, lines } = captureLog();
  const stop = followCertificate({
    first,
    read: () => found,
    use: (one) => used.push(one),
    logger,
    lookMs: 1,
  });
  const look = () => vi.advanceTimersByTime(1);
  look();
  look();
  // A look while the files are being written.
  found = { problem: "TLS_KEY_FILE is other" };
  look();
  found = { value: second };
  look();
  expect([used, lines()]).toEqual([[], []]);
  look();
  look();
  expect(used).toEqual([second]);
  found = { problem: "TLS_KEY_FILE is other" };
  for (let time = 0; time < 5; time += 1) look();
  found = { value: second };
  for (let time = 0; time < 5; time += 1) look();
  expect(used).toEqual([second]);
  expect(lines()).toMatchObject([
    { level: "info", msg: "The certificate was replaced", validTo: "2120-01-01T06:35:11.000Z" },
    {
      level: "warn",
      msg: "The certificate cannot be read again, so the last one is kept: TLS_KEY_FILE is other",
    },
  ]);
  stop();
  found = { value: first };
  for (let time = 0; time < 5; time += 1) look();
  expect(used).toEqual([second]);
});
