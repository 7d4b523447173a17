/** Standard output whose reader stops reading, on a real pipe. */
import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import { close, createReadStream, open } from "node:fs";
import { rm } from "node:fs/promises";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { createOutput } from "../../../src/platform/observability/output.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const cleanup = suiteCleanup();

/** An output into a pipe, and the pipe's other end, which is not read yet. */
async function pipe(onResumed: (lines: number) => void) {
  const path = join(tmpdir(), `gatepost-pipe-${randomUUID()}`);
  await promisify(execFile)("mkfifo", [path]);
  cleanup.defer(() => rm(path));
  // Each end opens once the other one does.
  const [reading, writing] = await Promise.all([promisify(open)(path, "r"), promisify(open)(path, "w")]);
  const stream = new Socket({ fd: writing, readable: false, writable: true });
  cleanup.defer(() => {
    stream.destroy();
  });
  const output = createOutput(stream, onResumed);
  return {
    output,
    reading,
    flushed: () =>
      new Promise<void>((resolve, reject) => {
        output.flush((error) => (error ? reject(error) : resolve()));
      }),
  };
}

test("lines that nobody reads wait, up to a bound; the rest is dropped, counted and reported", async () => {
  let dropped = 0;
  const { output, reading, flushed } = await pipe((lines) => {
    dropped += lines;
  });
  const line = `${"x".repeat(1023)}\n`;
  const lines = 6 * 1024;
  for (let number = 0; number < lines; number += 1) output.write(line);
  let isFlushed = false;
  const flush = flushed().then(() => {
    isFlushed = true;
  });
  await new Promise(setImmediate);
  expect(isFlushed).toBe(false);
  let bytes = 0;
  const reader = createReadStream("", { fd: reading });
  cleanup.defer(() => {
    reader.destroy();
  });
  reader.on("data", (chunk) => {
    bytes += chunk.length;
  });
  await flush;
  await waitFor(() => expect(dropped).toBeGreaterThan(1_000));
  await waitFor(() => expect(bytes).toBe((lines - dropped) * line.length));
  expect(bytes).toBeGreaterThanOrEqual(4 * 1024 * 1024);
});

test("a reader that has gone ends nothing, and what is written is never called written", async () => {
  const { output, reading, flushed } = await pipe(() => undefined);
  output.write("read\n");
  await flushed();
  await promisify(close)(reading);
  output.write("nobody reads this\n");
  await waitFor(() => expect(flushed()).rejects.toThrow());
  output.write("nor this\n");
  await expect(flushed()).rejects.toThrow("standard output is closed");
});
