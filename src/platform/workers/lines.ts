/** The output of workers, which becomes that of the primary in whole lines. */
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";

const lineFeed = 0x0a;

/**
 * Passes whole lines on; a last line without an end gets one. Reads no faster than `to` takes them, and if that has
 * closed, closes `from`: the writer of the lines is to know that nobody reads them. Never rejects.
 */
export async function passLines(from: Readable, to: Writable): Promise<void> {
  let rest: Buffer = Buffer.alloc(0);
  try {
    for await (const chunk of from) {
      if (to.destroyed) break;
      const text: Buffer = Buffer.concat([rest, chunk]);
      const end = text.lastIndexOf(lineFeed) + 1;
      rest = text.subarray(end);
      if (end > 0 && !to.write(text.subarray(0, end))) await drained(to);
    }
    if (rest.length > 0 && !to.destroyed) to.write(`${rest}\n`);
  } catch {
    from.destroy();
  }
}

/** Resolves when the stream takes more, or has closed; rejects with its error. */
async function drained(stream: Writable): Promise<void> {
  const settled = new AbortController();
  const { signal } = settled;
  await Promise.race([once(stream, "drain", { signal }), once(stream, "close", { signal })]).finally(() =>
    settled.abort(),
  );
}
