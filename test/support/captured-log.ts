/** A log that a test can read: the real logger, writing into memory. */
import { createLogger, type Logger } from "../../src/platform/observability/logger.ts";

export interface CapturedLog {
  readonly logger: Logger;
  /** Everything written, as it was written. */
  text(): string;
  /** Every line, parsed. */
  lines(): Record<string, unknown>[];
}

/** @param environment what decides the form of the lines; `lines()` needs "production" */
export function captureLog(environment: "development" | "production" = "production"): CapturedLog {
  const written: string[] = [];
  const destination = { write: (line: string) => void written.push(line) };
  return {
    logger: createLogger({ level: "trace", environment, destination }),
    text: () => written.join(""),
    lines: () => written.map((line) => JSON.parse(line)),
  };
}

/** The first line that was logged, as text and parsed. */
export function logged(log: (logger: Logger) => void): { text: string; line: Record<string, unknown> } {
  const captured = captureLog();
  log(captured.logger);
  const [line = {}] = captured.lines();
  return { text: captured.text(), line };
}
