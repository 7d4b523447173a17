/** One request on the wire, from its HEADERS to the end of its response. */
import type { ClientStream, StreamListener } from "./connection.ts";
import type { ReceiveWindow } from "./receive-window.ts";

export class Stream implements ClientStream {
  readonly id: number;
  readonly listener: StreamListener;
  /** Bytes of the body that the peer still accepts. Negative if its settings have taken back what was sent already. */
  sendWindow: number;
  /** The rest of the body while the peer's windows are full. */
  unsent: Uint8Array | undefined;
  hasResponse = false;
  /** Bytes of the response's body that are to come, if it has announced them. */
  expectedBytes: number | undefined;
  /** Made for responses of more than one DATA frame, which are few. */
  receiveWindow: ReceiveWindow | undefined;
  readonly #onCancel: (stream: Stream) => void;

  constructor(id: number, listener: StreamListener, sendWindow: number, onCancel: (stream: Stream) => void) {
    this.id = id;
    this.listener = listener;
    this.sendWindow = sendWindow;
    this.#onCancel = onCancel;
  }

  cancel(): void {
    this.#onCancel(this);
  }
}
