/** The numbers of HTTP/2 (RFC 9113), the settings of both sides, and its two kinds of errors (section 5.4). */

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
/** Most bytes of a block's fields, each counted with 32 more (section 6.5.2): what we announce. */
export const maxHeaderListBytes = 32_768;
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

const entryBytes = 6;
/** More than there are, and than anybody will define. */
const maxEntries = 64;

export type PeerSettings = ReturnType<typeof defaultPeerSettings>;

/** The limits that the peer announces, as they are until it does. */
export function defaultPeerSettings() {
  return {
    headerTableSize: 4_096,
    maxConcurrentStreams: Number.POSITIVE_INFINITY,
    initialWindowSize: defaultWindowBytes,
  };
}

/** What we announce: no dynamic table for header blocks, no pushed streams, the limit on header fields. */
export const ownSettings: Buffer = settingsPayload([
  [setting.headerTableSize, 0],
  [setting.enablePush, 0],
  [setting.maxHeaderListSize, maxHeaderListBytes],
]);

function settingsPayload(entries: readonly (readonly [id: number, value: number])[]): Buffer {
  const payload = Buffer.alloc(entries.length * entryBytes);
  for (const [index, [id, value]] of entries.entries()) {
    payload.writeUInt16BE(id, index * entryBytes);
    payload.writeUInt32BE(value, index * entryBytes + 2);
  }
  return payload;
}

/** Applies the payload of a SETTINGS frame, entry by entry. @throws ConnectionError for a value that is not allowed */
export function applySettings(payload: Buffer, settings: PeerSettings): void {
  if (payload.length % entryBytes !== 0 || payload.length > maxEntries * entryBytes) {
    throw new ConnectionError(errorCode.frameSizeError, "the size of SETTINGS");
  }
  for (let at = 0; at < payload.length; at += entryBytes) {
    applySetting(payload.readUInt16BE(at), payload.readUInt32BE(at + 2), settings);
  }
}

function applySetting(id: number, value: number, settings: PeerSettings): void {
  switch (id) {
    case setting.headerTableSize:
      settings.headerTableSize = value;
      break;
    case setting.enablePush:
      // A server must not enable it: it cannot be pushed to.
      if (value !== 0) throw protocolError("SETTINGS_ENABLE_PUSH of a server");
      break;
    case setting.maxConcurrentStreams:
      settings.maxConcurrentStreams = value;
      break;
    case setting.initialWindowSize:
      if (value > max31)
        throw new ConnectionError(errorCode.flowControlError, "SETTINGS_INITIAL_WINDOW_SIZE");
      settings.initialWindowSize = value;
      break;
    case setting.maxFrameSize:
      // Checked only: we never send more than everybody accepts.
      if (value < defaultFrameBytes || value > 0xff_ffff) throw protocolError("SETTINGS_MAX_FRAME_SIZE");
      break;
    default:
  }
}
