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

/** A UUID of version 7 (RFC 9562 section 5.7), ordered by time. @param now milliseconds since the epoch */
export function uuidv7(now: number): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(now, 0, 6);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x70, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  const hex = bytes.toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}

/** The lowest UUID of version 7 that is made at this moment or later. @param at milliseconds since the epoch */
export function lowestUuidv7(at: number): string {
  const time = Math.max(0, Math.floor(at)).toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-0000-0000-000000000000`;
}
