/** What a notification says and how it is to be delivered, as a caller states it, for all of its recipients. */

/** A title and a message in one language. Both may hold variables, as `{{name}}`. */
export interface Text {
  readonly title: string;
  readonly message: string;
}

/** The values of a recipient's variables, by name. */
export type Variables = Readonly<Record<string, string>>;

/** How strongly a device of Apple presents a notification, as its payload says it. */
type InterruptionLevel = "passive" | "active" | "time-sensitive" | "critical";

export interface Content {
  /** The language of recipients for whom `texts` has none. Undefined if there is one text at most. */
  readonly defaultLanguage?: string | undefined;
  /** By language tag in its canonical form (`canonicalLanguage`). Empty if and only if the notification is silent. */
  readonly texts: Readonly<Record<string, Text>>;
  /** A file name, below the base URL of images. */
  readonly image?: string | undefined;
  /** What a tap opens: an https URL, or a URL with an app's own scheme. */
  readonly link?: string | undefined;
  readonly data?: Readonly<Record<string, string>> | undefined;
  readonly sound?: string | undefined;
  /** The number at the app's icon; 0 removes it. */
  readonly badge?: number | undefined;
  /** Android's notification channel. */
  readonly channel?: string | undefined;
  /** Apple's category, which names the notification's actions. */
  readonly category?: string | undefined;
  /** Apple's thread: notifications of one thread are shown as a group. */
  readonly thread?: string | undefined;
  readonly interruptionLevel?: InterruptionLevel | undefined;
  /** Whether the app is woken without anything being shown. */
  readonly silent: boolean;
  /** What becomes of a text that is too long for a provider. */
  readonly tooLong: "shorten" | "refuse";
}

export interface Delivery {
  readonly priority: "high" | "normal";
  /** Seconds for which a provider keeps trying. Undefined: as the settings say. */
  readonly ttlSeconds?: number | undefined;
  /** On a device, a later notification with the same one replaces this. Undefined: the id of the notification. */
  readonly collapseId?: string | undefined;
  /** Messages a second over all providers and processes. Undefined: only the providers' own limits hold. */
  readonly maxPerSecond?: number | undefined;
  /** Whether recipients find the notification in their history; not if it is silent. */
  readonly history: boolean;
}

/** Whether a value that was stored is a content. Its members were checked before that. */
export function isContent(value: unknown): value is Content {
  if (typeof value !== "object" || value === null) return false;
  return "texts" in value && typeof value.texts === "object" && "silent" in value && "tooLong" in value;
}

/** The content of a notification that has one text, in no language that anybody knows. */
export function plainContent(text: Text, image: string | undefined): Content {
  return { texts: { und: text }, image, silent: false, tooLong: "shorten" };
}
