/** Two clients of HTTP/2 behind one interface: ours, and that of Node.js, which ours is held against. */
import type { Connect } from "../../src/platform/http2/connection.ts";
import { FrameConnection } from "../../src/platform/http2/frame-connection.ts";
import { NodeConnection } from "./node-connection.ts";

export const http2Clients = {
  own: (options, listener) => new FrameConnection(options, listener),
  node: (options, listener) => new NodeConnection(options, listener),
} as const satisfies Readonly<Record<string, Connect>>;
