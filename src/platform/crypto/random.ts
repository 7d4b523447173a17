import { randomFillSync } from "node:crypto";

/** Fetched ahead: what a fetch costs hardly depends on its size, and one request can take four. */
const ahead = Buffer.allocUnsafeSlow(4096);
let given = ahead.length;

/** Unpredictable bytes, at most 4096. Each is given once, and is not kept here. */
export function randomBytes(size: number): Buffer {
  if (size > ahead.length) throw new RangeError(`at most ${ahead.length} bytes at once`);
  if (given + size > ahead.length) {
    randomFillSync(ahead);
    given = 0;
  }
  const bytes = Buffer.from(ahead.subarray(given, given + size));
  ahead.fill(0, given, given + size);
  given += size;
  return bytes;
}
