import { connect } from "node:net";
import type { Address } from "../settings.ts";

/** PostgreSQL's key of a connection (BackendKeyData). A client that has it may cancel the connection's statement. */
export interface BackendKey {
  readonly pid: number;
  readonly secret: number;
}

/** The code of a CancelRequest in PostgreSQL's protocol, in place of a version. */
const cancelRequestCode = 80_877_102;
/** Milliseconds that sending the request may take. */
const timeoutMs = 2_000;

/** Asks PostgreSQL to cancel a connection's statement, in the clear as libpq 16 does; whether it did is not said. */
export function requestCancel({ host, port }: Address, { pid, secret }: BackendKey): void {
  const request = Buffer.alloc(16);
  request.writeInt32BE(request.length, 0);
  request.writeInt32BE(cancelRequestCode, 4);
  request.writeUInt32BE(pid, 8);
  request.writeUInt32BE(secret, 12);
  const socket = connect({ host, port }, () => socket.end(request));
  socket.setTimeout(timeoutMs, () => socket.destroy());
  socket.on("error", () => socket.destroy()).unref();
}
