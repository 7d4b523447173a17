/**
 * A file as a log's destination. Lines wait in memory until they are flushed, and so does what could not be written, as
 * where the disk is full: each line is written once and whole. The file may be renamed at any time, as logrotate does:
 * what is flushed next goes into a new one under its name. Nothing but a file is written to, since whatever else has a
 * reader, as a FIFO has, keeps the writer waiting for that.
 */
import { close, constants, fstat, mkdir, open, stat, write } from "node:fs";
import { dirname } from "node:path";
import { promisify } from "node:util";
import type { DestinationStream } from "pino";

interface FileOutput extends DestinationStream {
  /** Takes a line, for the next flush. */
  write(line: string): void;
  /** Calls back once all lines so far are with the system; with an error if some are not: then they are still kept. */
  flush(done: (error?: Error) => void): void;
}

const writeTo: (file: number, bytes: Uint8Array) => Promise<{ bytesWritten: number }> = promisify(write);

/** Opens the file for appending, and makes it, and its directory, if it is missing. @throws if it cannot be written, or is no file */
export async function createFileOutput(path: string): Promise<FileOutput> {
  let file = await openFile(path);
  let lines: string[] = [];
  /** What is left of lines that have been taken out of `lines`. */
  let unwritten: Uint8Array = new Uint8Array();
  let writing = Promise.resolve();

  async function writeLines(): Promise<void> {
    while (unwritten.length > 0 || lines.length > 0) {
      if (unwritten.length === 0) {
        await followName();
        unwritten = Buffer.from(lines.join(""));
        lines = [];
      }
      const { bytesWritten } = await writeTo(file, unwritten);
      unwritten = unwritten.subarray(bytesWritten);
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
  const { O_WRONLY, O_APPEND, O_CREAT, O_NONBLOCK } = constants;
  await promisify(mkdir)(dirname(path), { recursive: true });
  // Without O_NONBLOCK, opening a FIFO waits for its reader.
  const file = await promisify(open)(path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0o666).catch(
    (error) => {
      throw error?.code === "ENXIO" ? notAFile(path) : error;
    },
  );
  if ((await promisify(fstat)(file)).isFile()) return file;
  await promisify(close)(file);
  throw notAFile(path);
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
