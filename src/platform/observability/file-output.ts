/**
 * A file as a log's destination. Lines wait in memory until they are flushed, and so does what could not be written, as
 * where the disk is full. A line of which only a part could be written is written again as a whole, on a line of its
 * own. The file may be renamed at any time, as logrotate does: what is flushed next goes into a new one.
 */
import { constants } from "node:fs";
import { type FileHandle, mkdir, open } from "node:fs/promises";
import { dirname } from "node:path";
import { setTimeout } from "node:timers/promises";
import type { DestinationStream } from "pino";

interface FileOutput extends DestinationStream {
  write(line: string): void;
  /** Calls back once all lines so far are with the system; with an error if some are not: then they are still kept. */
  flush(done: (error?: Error) => void): void;
}

const lineFeed = 0x0a;
/** Milliseconds after which a line that has no end was written in part, and not by a process that is about to end it. */
const tornAfterMs = 20;

/** Makes the file, and its directory, if it is missing. @throws if it cannot be written, or is no file */
export async function createFileOutput(path: string): Promise<FileOutput> {
  await (await openFile(path)).close();
  let lines: string[] = [];
  /** Lines that have been taken out of `lines`, and are not in the file as a whole. */
  let unwritten: Buffer = Buffer.alloc(0);
  let writing = Promise.resolve();

  async function writeLines(): Promise<void> {
    if (unwritten.length === 0 && lines.length === 0) return;
    await using file = await openFile(path);
    while (unwritten.length > 0 || lines.length > 0) {
      if (unwritten.length === 0) {
        unwritten = Buffer.from(lines.join(""));
        lines = [];
      }
      if (await endsWithinLine(file)) await file.write(Buffer.of(lineFeed));
      const { bytesWritten } = await file.write(unwritten);
      unwritten = unwritten.subarray(unwritten.subarray(0, bytesWritten).lastIndexOf(lineFeed) + 1);
    }
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

/** Opens a regular file for appending. Whatever else has a reader, as a FIFO has, would keep the writer waiting. */
async function openFile(path: string): Promise<FileHandle> {
  const { O_RDWR, O_APPEND, O_CREAT, O_NONBLOCK } = constants;
  await mkdir(dirname(path), { recursive: true });
  // Without O_NONBLOCK, opening a FIFO waits for its reader. ENXIO is said of one that nobody reads, and of a socket.
  const file = await open(path, O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK).catch((error) => {
    if (error?.code !== "ENXIO") throw error;
  });
  if (file && (await file.stat()).isFile()) return file;
  await file?.close();
  throw new Error(`${path} is no regular file`);
}

async function endsWithinLine(file: FileHandle): Promise<boolean> {
  if (!(await lacksLineEnd(file))) return false;
  await setTimeout(tornAfterMs);
  return lacksLineEnd(file);
}

async function lacksLineEnd(file: FileHandle): Promise<boolean> {
  const { size } = await file.stat();
  if (size === 0) return false;
  const { buffer } = await file.read(Buffer.alloc(1), 0, 1, size - 1);
  return buffer[0] !== lineFeed;
}
