/**
 * The interface of a push provider: it sends one message to one device and returns the outcome, from which delivery
 * decides all else.
 */
import type { Content, Delivery } from "../content/content.ts";
import type { ProviderName } from "../provider-settings.ts";

/** What goes to a device beside the text. */
type Extras = Pick<
  Content,
  "link" | "data" | "sound" | "badge" | "channel" | "category" | "thread" | "interruptionLevel"
>;

/** The content that devices show: a notification in one language, and with one user's values if it has variables. */
export interface NotificationContent extends Extras, Partial<Pick<Delivery, "priority" | "collapseId">> {
  /** UUID of the notification. */
  readonly notificationId: string;
  /** Empty in a silent notification, as is the message. */
  readonly title: string;
  readonly message: string;
  /** Absolute URL; undefined: none. */
  readonly imageUrl: string | undefined;
  /** Whether the app is woken, and nothing shown. Undefined: it is not. */
  readonly silent?: boolean;
  /** Expiry, in milliseconds since the epoch. */
  readonly expiresAt: number;
}

/** What a message replaces on the device, and is replaced by: messages with the same one. */
export const collapseIdOf = ({ collapseId, notificationId }: NotificationContent): string =>
  collapseId ?? notificationId;

/** A content's own data, with its link, for the app. Undefined: it has neither. */
export function dataOf({ data, link }: NotificationContent): Readonly<Record<string, string>> | undefined {
  return data === undefined && link === undefined
    ? undefined
    : { ...(link !== undefined && { link }), ...data };
}

/** The size of a content's payload, as its provider counts. */
export interface PayloadSize {
  /** Bytes of all of it. */
  readonly bytes: number;
  /** The most that the provider takes. */
  readonly limit: number;
  /** Whether it is sent without its image, or with a shorter message. */
  readonly isShortened: boolean;
  /** Whether the provider takes what is sent. If not, its title, link and data leave no room for a message. */
  readonly fits: boolean;
}

/** One device that the content goes to. */
export interface Recipient {
  /** The device's token, as its app registered it: for Web Push, the subscription as JSON. */
  readonly token: string;
  /** UUID, lower case; the same each time that this notification is sent to this device. */
  readonly messageId: string;
  /** What the device is: ios, android or web. Absent: its app has not said, or its provider does. */
  readonly platform?: string | null;
}

/** The outcome of sending one message. */
export type Outcome =
  /** The provider has accepted the message. */
  | { readonly kind: "sent" }
  /**
   * The token is dead: remove it, unless it was renewed since `asOf`, milliseconds since the epoch, if the provider
   * says.
   */
  | { readonly kind: "dead"; readonly asOf?: number; readonly reason: string }
  /** The message cannot be sent and a retry would change nothing; the token is kept. `isUnasked`: by our own rules. */
  | { readonly kind: "failed"; readonly isUnasked?: true; readonly reason: string }
  /** The provider lacks something for tokens of this kind that an operator can give it; the token is kept. */
  | { readonly kind: "blocked"; readonly reason: string }
  /**
   * The token belongs to another project, topic or key than ours: by its fault or, if most users' tokens do, by ours.
   */
  | { readonly kind: "foreign"; readonly reason: string }
  /**
   * The message may succeed later. `afterMs`: the wait that the provider wants. `isOwn`: it says nothing about the
   * provider. `isThrottled`: a quota is used up, the device's own unless several users meet it. `hasNoResponse`: only
   * the outcomes of other messages show whether the message or the provider failed.
   */
  | {
      readonly kind: "retry";
      readonly afterMs?: number;
      readonly isOwn?: true;
      readonly isThrottled?: true;
      readonly hasNoResponse?: true;
      readonly reason: string;
    }
  /**
   * No message can be sent for `afterMs`: the provider is unreachable, or gives us no access. Not by a response to a
   * message. `hasNoResponse`: no connection was made, or none brought a response.
   */
  | {
      readonly kind: "unavailable";
      readonly afterMs?: number;
      readonly hasNoResponse?: true;
      readonly reason: string;
    }
  /**
   * The provider refuses our credentials, project or topic: remove nothing. One response holds for its message, those
   * of several users, or one that `isConfirmed` by asking again, for all: stop, alert the operator. `isOfTime`: our
   * clock may be why.
   */
  | {
      readonly kind: "refused";
      readonly isConfirmed?: true;
      readonly isOfTime?: true;
      readonly reason: string;
    };

/**
 * Sends the same content to a device. Every failure is an outcome; an exception is a defect. Made once within a chunk for
 * each language, and for each user if there are variables.
 */
export type Send = (recipient: Recipient) => Promise<Outcome>;

/** A token as it is stored. */
export interface KeptToken {
  readonly token: string;
  /** The device as its provider knows it: the same in every spelling of the token. */
  readonly identity: string;
  /** What all tokens of an installation of the app begin with. Of those that a user has saved, the newest is kept. */
  readonly installation?: string;
}

/** A push provider. */
export interface PushProvider {
  readonly name: ProviderName;
  /**
   * The service that a token's messages go to, paused by itself: for Web Push the origin. Absent if there is one alone.
   */
  serviceOf?(token: string): string;
  /** Messages that may be in flight at once in this process. */
  readonly maxInFlight: number;
  /** Checks the syntax of a token. @returns what is wrong with it, in words; undefined if nothing is */
  tokenProblem(token: string): string | undefined;
  /** The form in which a token is stored, if not as the app wrote it. Tokens with the same identity are one device. */
  deviceOf?(token: string): KeptToken;
  /**
   * Checks whether the provider accepts our credentials, without sending anything to a device.
   * @returns `refused` if it does not, a final outcome if it does
   */
  selfTest?(): Promise<Outcome>;
  /** The size of a content's payload. Undefined: it is sent to no device. Absent: payloads have no limit. */
  payloadSize?(content: NotificationContent): PayloadSize | undefined;
  /** Prepares the sending of a content to devices of a chunk. */
  prepare(content: NotificationContent): Send;
  /** Lets requests in flight finish, then closes its connections; a message that needs another is `unavailable`. */
  close(): Promise<void>;
}
