import { randomFillSync } from "node:crypto";

/** Random bytes, fetched in advance: the cost of a fetch hardly depends on its size. */
const buffer = Buffer.allocUnsafeSlow(4096);
let used = buffer.length;

/** Unpredictable bytes, at most 4096. Each is returned once, and is then erased from the buffer. */
export function randomBytes(size: number): Buffer {
  if (size > buffer.length) throw new RangeError(`at most ${buffer.length} bytes at once`);
  if (used + size > buffer.length) {
    randomFillSync(buffer);
    used = 0;
  }
  const bytes = Buffer.from(buffer.subarray(used, used + size));
  buffer.fill(0, used, used + size);
  used += size;
  return bytes;
}
