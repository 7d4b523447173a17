/** An HTTP/2 server that knows nothing but frames, so that it can send whatever no server should. */
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";

export interface Frame {
  readonly type: number;
  readonly flags: number;
  readonly streamId: number;
  readonly payload: Buffer;
}

const headerBytes = 9;
const prefaceBytes = 24;

export function frame(
  type: number,
  flags: number,
  streamId: number,
  payload: Uint8Array = Buffer.alloc(0),
): Buffer {
  const header = Buffer.alloc(headerBytes);
  header.writeUIntBE(payload.length, 0, 3);
  header.writeUInt8(type, 3);
  header.writeUInt8(flags, 4);
  header.writeUInt32BE(streamId, 5);
  return Buffer.concat([header, payload]);
}

/** An integer of 32 bits as a payload. */
export function number(value: number): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(value);
  return payload;
}

export function settings(entries: Readonly<Record<number, number>> = {}): Buffer {
  const parts = Object.entries(entries).map(([id, value]) => {
    const entry = Buffer.alloc(6);
    entry.writeUInt16BE(Number(id), 0);
    entry.writeUInt32BE(value, 2);
    return entry;
  });
  return frame(0x4, 0, 0, Buffer.concat(parts));
}

/** `:status: 200`, without a body. */
export const ok = (streamId: number): Buffer => frame(0x1, 0x5, streamId, Buffer.of(0x88));

/** A client, as the server sees it. */
export class Peer {
  readonly socket: Socket;
  /** All frames of the client so far. */
  readonly frames: Frame[] = [];
  /** How often bytes came. */
  reads = 0;
  #bytes = Buffer.alloc(0);
  #isGreeted = false;
  #taken = 0;
  #onChange: (() => void) | undefined;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on("error", () => {});
    socket.on("close", () => this.#onChange?.());
    socket.on("data", (bytes) => {
      this.reads += 1;
      this.#bytes = Buffer.concat([this.#bytes, bytes]);
      this.#parse();
      this.#onChange?.();
    });
  }

  #parse(): void {
    if (!this.#isGreeted && this.#bytes.length >= prefaceBytes) {
      if (!this.#bytes.toString("latin1", 0, prefaceBytes).startsWith("PRI * HTTP/2.0"))
        throw new Error("no preface");
      this.#bytes = this.#bytes.subarray(prefaceBytes);
      this.#isGreeted = true;
    }
    while (this.#isGreeted && this.#bytes.length >= headerBytes) {
      const end = headerBytes + this.#bytes.readUIntBE(0, 3);
      if (this.#bytes.length < end) return;
      this.frames.push({
        type: this.#bytes.readUInt8(3),
        flags: this.#bytes.readUInt8(4),
        streamId: this.#bytes.readUInt32BE(5),
        payload: this.#bytes.subarray(headerBytes, end),
      });
      this.#bytes = this.#bytes.subarray(end);
    }
  }

  send(...frames: readonly Buffer[]): void {
    this.socket.write(Buffer.concat(frames));
  }

  /** The next frame of this type, behind the last one that was taken. @throws if the client is gone without one */
  async next(type: number): Promise<Frame> {
    for (;;) {
      const index = this.frames.findIndex((sent, at) => at >= this.#taken && sent.type === type);
      const found = this.frames[index];
      if (found) {
        this.#taken = index + 1;
        return found;
      }
      if (this.socket.destroyed) throw new Error(`The client left without a frame of type ${type}.`);
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#onChange = resolve;
      await promise;
    }
  }

  /** Bytes of DATA on a stream. */
  bodyBytes(streamId: number): number {
    const data = this.frames.filter((sent) => sent.type === 0x0 && sent.streamId === streamId);
    return data.reduce((sum, { payload }) => sum + payload.length, 0);
  }
}

export interface RawServer {
  readonly origin: string;
  /** The next client. */
  accept(): Promise<Peer>;
  close(): Promise<void>;
}

export async function startRawServer(): Promise<RawServer> {
  const peers: Peer[] = [];
  const server = createServer((socket) => {
    peers.push(new Peer(socket));
    server.emit("peer");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  let accepted = 0;
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async accept() {
      accepted += 1;
      while (peers.length < accepted) await once(server, "peer");
      const peer = peers[accepted - 1];
      if (peer === undefined) throw new Error("There is no client.");
      return peer;
    },
    async close() {
      for (const { socket } of peers) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
