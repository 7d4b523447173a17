/** The settings of both sides (RFC 9113 section 6.5.2). */
import { maxHeaderListBytes } from "./hpack-decoder.ts";
import {
  ConnectionError,
  defaultFrameBytes,
  defaultWindowBytes,
  errorCode,
  max31,
  protocolError,
  setting,
} from "./protocol.ts";

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
