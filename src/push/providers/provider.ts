/**
 * What a push provider is to the rest of the service: it sends one message to one device and says what came
 * of it. Owns the vocabulary that every provider translates its own answers into; pacing, retries, the
 * breaker and the deleting of tokens are decided once, by delivery, from these.
 */
import type { ProviderName } from "../provider-settings.ts";

/** What every device of a notification is shown. */
export interface NotificationContent {
  /** UUID of the notification: what repeats collapse on, on the device. */
  readonly notificationId: string;
  readonly title: string;
  readonly message: string;
  /** Absolute URL; undefined: none. */
  readonly imageUrl: string | undefined;
  /** Milliseconds since the epoch, after which nobody needs it any more. */
  readonly expiresAt: number;
}

/** One device that the content goes to. */
export interface Recipient {
  /** The device's token, as its app registered it: for Web Push, the subscription as JSON. */
  readonly token: string;
  /** UUID, lower case; the same each time that this notification is sent to this device. */
  readonly messageId: string;
}

/** What came of sending one message. */
export type Outcome =
  /** The provider has taken it. */
  | { readonly kind: "sent" }
  /**
   * The token is dead: remove it, unless it was registered or renewed since. `asOf`: milliseconds since the
   * epoch at which the provider last knew it dead, where the provider says so.
   */
  | { readonly kind: "dead"; readonly asOf?: number; readonly reason: string }
  /** The message cannot be sent and a retry would change nothing; the token is kept. */
  | { readonly kind: "failed"; readonly reason: string }
  /** This message may succeed later; the provider itself works. `afterMs`: not before, if it says so. */
  | { readonly kind: "retry"; readonly afterMs?: number; readonly reason: string }
  /** The provider is away, overloaded or out of quota: nothing more should be sent to it for `afterMs`, if it says so. */
  | { readonly kind: "unavailable"; readonly afterMs?: number; readonly reason: string }
  /** The provider refuses us (credentials, project, topic): stop, tell the operator, keep everything. */
  | { readonly kind: "refused"; readonly reason: string };

/**
 * Sends the same content to many devices. Made once for each chunk, so that what is common to its messages
 * is built once.
 */
export type Send = (recipient: Recipient) => Promise<Outcome>;

/** A way to devices. */
export interface PushProvider {
  readonly name: ProviderName;
  /**
   * False: there are many services behind it, which clients name. Then retries, however many in a row, say
   * nothing of the provider.
   */
  readonly isOneService: boolean;
  /** Messages that may be in flight at once in this process. */
  readonly maxInFlight: number;
  /** Whether this can be a token of the provider. @returns what is wrong with it, in words; undefined if nothing is */
  tokenProblem(token: string): string | undefined;
  /** Prepares to send. The function that it returns never rejects: whatever happens is an outcome. */
  prepare(content: NotificationContent): Send;
  /** Lets messages in flight finish, then closes its connections. */
  close(): Promise<void>;
}
