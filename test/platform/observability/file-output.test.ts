/** A log in a file that is renamed, replaced, and cannot be written to for a while. */
import { execFileSync } from "node:child_process";
import {
  appendFileSync,
  createReadStream,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createFileLogger } from "../../../src/platform/observability/logger.ts";

function newDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  return directory;
}

async function open(path: string) {
  const log = await createFileLogger(path);
  return {
    log,
    flushed: () =>
      new Promise<void>((resolve, reject) => {
        log.flush((error) => (error ? reject(error) : resolve()));
      }),
  };
}

const linesOf = (path: string) =>
  readFileSync(path, "utf8")
    .split("\n")
    .filter((line) => line !== "")
    .map((line): unknown => JSON.parse(line).msg);

test("a file that was renamed gets no more lines, and a new one under its name does", async () => {
  const path = join(newDirectory(), "made/events.jsonl");
  const { log, flushed } = await open(path);
  log.info("one");
  await flushed();
  renameSync(path, `${path}.1`);
  log.info("two");
  await flushed();
  // Moved away, with another file in its place, as `create` of logrotate does.
  renameSync(path, `${path}.2`);
  writeFileSync(path, "");
  log.info("three");
  log.info("four");
  await flushed();
  expect([`${path}.1`, `${path}.2`, path].map(linesOf)).toEqual([["one"], ["two"], ["three", "four"]]);
});

test("lines that could not be written are kept, and written once they can be", async () => {
  const path = join(newDirectory(), "events.jsonl");
  const { log, flushed } = await open(path);
  rmSync(path);
  mkdirSync(path);
  log.info("one");
  await expect(flushed()).rejects.toThrow("EISDIR");
  log.info("two");
  await expect(Promise.all([flushed(), flushed()])).rejects.toThrow("EISDIR");
  rmdirSync(path);
  await Promise.all([flushed(), flushed()]);
  await flushed();
  expect(linesOf(path)).toEqual(["one", "two"]);
});

test("a part of a line that another process left is ended before the next line", async () => {
  const path = join(newDirectory(), "events.jsonl");
  const { log, flushed } = await open(path);
  log.info("one");
  await flushed();
  appendFileSync(path, '{"msg":"a part');
  log.info("two");
  await flushed();
  const [one, part, ...rest] = readFileSync(path, "utf8").split("\n");
  expect([one, ...rest]).toEqual([expect.stringContaining('"one"'), expect.stringContaining('"two"'), ""]);
  expect(part).toBe('{"msg":"a part');
});

test("a line that was written in part is written again as a whole", () => {
  const path = join(newDirectory(), "events.jsonl");
  const program = `
    import { renameSync } from "node:fs";
    import { createFileLogger } from ${JSON.stringify(new URL("../../../src/platform/observability/logger.ts", import.meta.url).href)};
    const [path] = process.argv.slice(1);
    const log = await createFileLogger(path);
    const flushed = () => new Promise((resolve) => log.flush(resolve));
    for (const letter of "abc") log.info(letter.repeat(1500));
    const error = await flushed();
    renameSync(path, path + ".1");
    process.stdout.write(error.code + " " + (await flushed()));`;
  // The system refuses to let the file grow beyond four blocks of 1,024 bytes.
  const limited = `trap "" XFSZ; ulimit -f 4; exec "$0" "$@"`;
  const args = ["-c", limited, process.execPath, "--input-type=module", "-e", program, path];
  expect(execFileSync("bash", args, { encoding: "utf8" })).toBe("EFBIG undefined");
  expect(linesOf(path)).toEqual(["c".repeat(1500)]);
  const whole = readFileSync(`${path}.1`, "utf8").split("\n").slice(0, -1);
  expect(whole.map((line) => JSON.parse(line).msg[0])).toEqual(["a", "b"]);
});

test("of several processes that append to one file, every line is whole", async () => {
  const path = join(newDirectory(), "events.jsonl");
  const logs = await Promise.all([open(path), open(path), open(path)]);
  for (let round = 0; round < 50; round += 1) {
    await Promise.all(
      logs.map(({ log, flushed }) => {
        log.info("x".repeat(10_000));
        return flushed();
      }),
    );
  }
  expect(linesOf(path)).toHaveLength(150);
});

test("nothing but a file is opened, and nobody waits for the reader of a FIFO", async () => {
  const directory = newDirectory();
  const fifo = join(directory, "fifo");
  execFileSync("mkfifo", [fifo]);
  await expect(open(fifo)).rejects.toThrow(`${fifo} is no regular file`);
  const reader = createReadStream(fifo);
  onTestFinished(() => void reader.destroy());
  await expect(open(fifo)).rejects.toThrow(`${fifo} is no regular file`);
  await expect(open("/dev/null")).rejects.toThrow("/dev/null is no regular file");
  await expect(open(directory)).rejects.toThrow("EISDIR");
  const socket = join(directory, "socket");
  const server = createServer().listen(socket);
  onTestFinished(() => void server.close());
  await expect(open(socket)).rejects.toThrow(`${socket} is no regular file`);
});
