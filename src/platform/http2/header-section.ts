/** Puts header blocks together from HEADERS and CONTINUATION frames (RFC 9113 sections 4.3 and 6.10). */
import { ConnectionError, errorCode, flag, protocolError } from "./protocol.ts";

/** Most bytes of a block, encoded. Decoded, it may have half as many. */
const maxBlockBytes = 65_536;
/** Most frames of a block: an endless row of small ones would cost more than its bytes. */
const maxFrames = 64;

export interface HeaderSection {
  readonly streamId: number;
  readonly isEnd: boolean;
  readonly block: Buffer;
}

export class HeaderSections {
  #open: { readonly streamId: number; readonly isEnd: boolean; readonly parts: Buffer[] } | undefined;
  #bytes = 0;

  /** The stream whose block goes on: the next frame must be CONTINUATION of this stream. */
  get continued(): number | undefined {
    return this.#open?.streamId;
  }

  /** @returns the section, if it ends here */
  begin(flags: number, streamId: number, payload: Buffer): HeaderSection | undefined {
    let part = unpadded(flags, payload);
    if ((flags & flag.priority) !== 0) {
      if (part.length < 5) throw new ConnectionError(errorCode.frameSizeError, "HEADERS is too short");
      part = part.subarray(5);
    }
    const isEnd = (flags & flag.endStream) !== 0;
    if ((flags & flag.endHeaders) !== 0) return { streamId, isEnd, block: part };
    this.#open = { streamId, isEnd, parts: [part] };
    this.#bytes = part.length;
    return undefined;
  }

  /** @returns the section, if it ends here */
  continue(flags: number, streamId: number, payload: Buffer): HeaderSection | undefined {
    const open = this.#open;
    if (open?.streamId !== streamId) throw protocolError("CONTINUATION without HEADERS");
    open.parts.push(payload);
    this.#bytes += payload.length;
    if (this.#bytes > maxBlockBytes || open.parts.length > maxFrames) {
      throw new ConnectionError(errorCode.enhanceYourCalm, "a header block is too long");
    }
    if ((flags & flag.endHeaders) === 0) return undefined;
    this.#open = undefined;
    return { streamId, isEnd: open.isEnd, block: Buffer.concat(open.parts) };
  }
}

/** The content of a frame of DATA or HEADERS without its padding (section 6.1). */
export function unpadded(flags: number, payload: Buffer): Buffer {
  if ((flags & flag.padded) === 0) return payload;
  const padding = payload[0];
  if (padding === undefined) throw new ConnectionError(errorCode.frameSizeError, "a padded frame is empty");
  if (padding >= payload.length) throw protocolError("a frame has more padding than content");
  return payload.subarray(1, payload.length - padding);
}
