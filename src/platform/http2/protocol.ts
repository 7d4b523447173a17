/** The numbers of HTTP/2 (RFC 9113), and its two kinds of errors (section 5.4). */

/** Types of frames (section 6). */
export const frameType = {
  data: 0x0,
  headers: 0x1,
  priority: 0x2,
  rstStream: 0x3,
  settings: 0x4,
  pushPromise: 0x5,
  ping: 0x6,
  goaway: 0x7,
  windowUpdate: 0x8,
  continuation: 0x9,
} as const;

/** Flags of frames (section 6). `ack` and `endStream` are the same bit, of different frames. */
export const flag = { ack: 0x1, endStream: 0x1, endHeaders: 0x4, padded: 0x8, priority: 0x20 } as const;

/** Parameters of SETTINGS (section 6.5.2). */
export const setting = {
  headerTableSize: 0x1,
  enablePush: 0x2,
  maxConcurrentStreams: 0x3,
  initialWindowSize: 0x4,
  maxFrameSize: 0x5,
  maxHeaderListSize: 0x6,
} as const;

/** Error codes of RST_STREAM and GOAWAY (section 7). */
export const errorCode = {
  noError: 0x0,
  protocolError: 0x1,
  flowControlError: 0x3,
  streamClosed: 0x5,
  frameSizeError: 0x6,
  refusedStream: 0x7,
  cancel: 0x8,
  compressionError: 0x9,
  enhanceYourCalm: 0xb,
} as const;

/** Bytes before the payload of each frame. */
export const frameHeaderBytes = 9;
/** Bytes of a payload that everybody accepts (section 4.2), and the most that we do. */
export const defaultFrameBytes = 16_384;
/** The first size of every flow-control window (section 6.9.2). */
export const defaultWindowBytes = 65_535;
/** The largest window, and the last stream id: 31 bits. */
export const max31 = 0x7fff_ffff;

/** The peer has broken the protocol so that the connection cannot go on. */
export class ConnectionError extends Error {
  readonly code: number;

  /** @param message what the peer did, in a few words */
  constructor(code: number, message: string) {
    super(message);
    this.name = "ConnectionError";
    this.code = code;
  }
}

/** The peer has broken the protocol on one stream. */
export class StreamError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.name = "StreamError";
    this.code = code;
  }
}

/** A {@link ConnectionError} with PROTOCOL_ERROR, the code of most. */
export function protocolError(message: string): ConnectionError {
  return new ConnectionError(errorCode.protocolError, message);
}
