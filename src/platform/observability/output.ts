/** Standard output as the log's destination. While a pipe is not read, lines wait, and further ones are dropped. */
import type { Writable } from "node:stream";
import type { DestinationStream } from "pino";

interface Output extends DestinationStream {
  /** Writes a line, or drops it while too much waits. */
  write(line: string): void;
  /** Calls back once all that was written is with the system; with an error if it never will be. */
  flush(done: (error?: Error) => void): void;
}

/** Bytes that may wait for the reader: the lines of some minutes. */
const maxWaiting = 4 * 1024 * 1024;

/** @param onResumed called with the number of lines dropped, when the reader of standard output reads again */
export function createOutput(stream: Writable, onResumed: (lines: number) => void): Output {
  let dropped = 0;
  // A reader that has gone makes the log useless, not the service.
  stream.on("error", () => undefined);
  stream.on("drain", () => {
    if (dropped === 0) return;
    const lines = dropped;
    dropped = 0;
    onResumed(lines);
  });
  return {
    write(line) {
      if (stream.writableLength > maxWaiting || stream.destroyed) dropped += 1;
      else stream.write(line);
    },
    flush(done) {
      if (stream.destroyed) done(new Error("standard output is closed"));
      else if (stream.writableLength === 0) done();
      else stream.write("", (error) => done(error ?? undefined));
    },
  };
}
