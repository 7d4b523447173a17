/**
 * A file as a log's destination. Lines wait in memory until they are flushed, and so does what could not be written, as
 * where the disk is full. A line of which only a part could be written is written again as a whole, on a line of its
 * own, whichever process left that part at the end of the file. The file may be renamed at any time, as logrotate does:
 * what is flushed next goes into a new one under its name. Nothing but a file is written to, since whatever else has a
 * reader, as a FIFO has, keeps the writer waiting for that.
 */
import { close, constants, fstat, mkdir, open, read, stat, write } from "node:fs";
import { dirname } from "node:path";
import { setTimeout } from "node:timers/promises";
import { promisify } from "node:util";
import type { DestinationStream } from "pino";

interface FileOutput extends DestinationStream {
  /** Takes a line, for the next flush. */
  write(line: string): void;
  /** Calls back once all lines so far are with the system; with an error if some are not: then they are still kept. */
  flush(done: (error?: Error) => void): void;
}

const writeTo: (file: number, bytes: Uint8Array) => Promise<{ bytesWritten: number }> = promisify(write);
const readFrom: (
  file: number,
  into: Uint8Array,
  offset: number,
  length: number,
  position: number,
) => Promise<unknown> = promisify(read);

const lineFeed = 0x0a;
/** Milliseconds after which a line that has no end was written in part. */
const tornAfterMs = 20;

/**
 * Opens the file for appending, and makes it, and its directory, if it is missing.
 * @throws if it cannot be written, or is no file
 */
export async function createFileOutput(path: string): Promise<FileOutput> {
  let file = await openFile(path);
  let lines: string[] = [];
  /** Lines that have been taken out of `lines`, and are not in the file as a whole. */
  let unwritten: Buffer = Buffer.alloc(0);
  let writing = Promise.resolve();

  async function writeLines(): Promise<void> {
    while (unwritten.length > 0 || lines.length > 0) {
      await followName();
      if (unwritten.length === 0) {
        unwritten = Buffer.from(lines.join(""));
        lines = [];
      }
      if (await endsWithinLine(file)) await writeTo(file, Buffer.of(lineFeed));
      const { bytesWritten } = await writeTo(file, unwritten);
      unwritten = unwritten.subarray(unwritten.subarray(0, bytesWritten).lastIndexOf(lineFeed) + 1);
    }
  }

  /** Goes on in the file that now has the name, if that is another one. */
  async function followName(): Promise<void> {
    if (await hasName(file, path)) return;
    const renamed = file;
    file = await openFile(path);
    await promisify(close)(renamed);
  }

  return {
    write(line) {
      lines.push(line);
    },
    flush(done) {
      const written = writing.then(writeLines);
      writing = written.catch(() => undefined);
      written.then(() => done(), done);
    },
  };
}

async function openFile(path: string): Promise<number> {
  const { O_RDWR, O_APPEND, O_CREAT, O_NONBLOCK } = constants;
  await promisify(mkdir)(dirname(path), { recursive: true });
  // Without O_NONBLOCK, opening a FIFO waits for its reader.
  const file = await promisify(open)(path, O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK, 0o666).catch((error) => {
    throw error?.code === "ENXIO" ? notAFile(path) : error;
  });
  if ((await promisify(fstat)(file)).isFile()) return file;
  await promisify(close)(file);
  throw notAFile(path);
}

/** Whether it does so for a moment: another process may be about to end its line. */
async function endsWithinLine(file: number): Promise<boolean> {
  if (!(await lacksLineEnd(file))) return false;
  await setTimeout(tornAfterMs);
  return lacksLineEnd(file);
}

async function lacksLineEnd(file: number): Promise<boolean> {
  const { size } = await promisify(fstat)(file);
  if (size === 0) return false;
  const last = Buffer.alloc(1);
  await readFrom(file, last, 0, 1, size - 1);
  return last[0] !== lineFeed;
}

/** ENXIO is what the system says of a FIFO that nobody reads, and of a socket. */
function notAFile(path: string): Error {
  return new Error(`${path} is no regular file`);
}

/** Whether this open file is the one that the path leads to. */
async function hasName(file: number, path: string): Promise<boolean> {
  const [own, named] = await Promise.all([
    promisify(fstat)(file),
    promisify(stat)(path).catch(() => undefined),
  ]);
  return named !== undefined && named.ino === own.ino && named.dev === own.dev;
}
