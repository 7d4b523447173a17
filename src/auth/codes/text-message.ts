export interface TextMessage {
  /** Unique to the message. */
  readonly id: string;
  /** Canonical E.164. */
  readonly phone: string;
  readonly text: string;
  /** The code in the text, alone. */
  readonly code: string;
}

/**
 * Hands a message over to whoever delivers it, once: after an error too it is not sent again.
 * @param signal ends the attempt
 * @throws MessageRefused if it was refused; after any other error it may have been delivered
 */
export type SendMessage = (message: TextMessage, signal: AbortSignal) => Promise<void>;

/** Shows a message that nothing delivers, beside the log. */
export type ShowMessage = (message: TextMessage) => Promise<void>;

/** The message was refused, or nothing was there to take it. The text says by what, for the log: it has neither phone nor code. */
export class MessageRefused extends Error {
  override readonly name = "MessageRefused";
}
