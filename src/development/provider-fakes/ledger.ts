/**
 * What a fake has accepted, by token, so that a test or a measurement can tell what reached whom, and how
 * often. Made for a million tokens: one small record each, kept in the order of their first message.
 */

/** Messages that are kept whole, the newest. */
const keptWhole = 100;

/** A message as it was accepted. */
interface AcceptedMessage {
  /** The device: registration token, device token, or the id of a push subscription. */
  readonly token: string;
  /** FCM: `data.messageId`; APNs: `apns-id`; Web Push: `messageId` of the JSON. */
  readonly messageId: string | undefined;
  /** FCM: `android.notification.tag`; APNs: `apns-collapse-id`; Web Push: `tag` of the JSON. */
  readonly collapseId: string | undefined;
  /** FCM: the message; APNs: the JSON body; Web Push: the decrypted text. */
  readonly payload: unknown;
}

/** A message id that a token was sent, and how often. */
interface TokenMessage {
  readonly messageId: string;
  readonly collapseId: string | undefined;
  readonly count: number;
}

/** What was accepted for one token. */
interface TokenEntry {
  readonly token: string;
  /** Messages, repeats included. */
  readonly count: number;
  /** One for each message id, in the order in which they came. */
  readonly messages: readonly TokenMessage[];
}

interface LedgerSummary {
  /** Tokens that accepted something. */
  readonly tokens: number;
  /** Messages accepted, repeats included. */
  readonly messages: number;
  /** Messages whose token had the same message id before. */
  readonly repeats: number;
  /** Tokens that had messages with different ids and the same collapse id: a device that was notified twice. */
  readonly tokensNotifiedTwice: number;
  /** Most messages accepted within one second of the clock. */
  readonly peakPerSecond: number;
  /** Milliseconds since the epoch; null as long as there was none. */
  readonly firstAt: number | null;
  readonly lastAt: number | null;
  /** Every answer and fault by its name, accepted ones as `OK`. */
  readonly answers: Readonly<Record<string, number>>;
}

export interface Ledger {
  record(message: AcceptedMessage): void;
  /** Counts an answer or fault, by its name. */
  answered(name: string): void;
  summary(): LedgerSummary;
  /** Undefined: nothing was accepted for it. */
  token(token: string): TokenEntry | undefined;
  /**
   * In the order of their first message.
   * @param after the last token of the page before; empty: from the first. One that is not there: no entries
   */
  tokens(after?: string, limit?: number): TokenEntry[];
  /** The last 100 accepted messages, the newest last. */
  recent(): AcceptedMessage[];
  clear(): void;
}

interface Message {
  readonly messageId: string;
  readonly collapseId: string | undefined;
  count: number;
}

/** The first message id stands in the record itself: most tokens have no second one. */
interface Entry {
  readonly index: number;
  readonly token: string;
  count: number;
  messageId: string | undefined;
  collapseId: string | undefined;
  firstCount: number;
  more: Message[] | undefined;
  isNotifiedTwice: boolean;
}

/** An empty ledger. */
export function createLedger(clock: { now(): number }): Ledger {
  return new TokenLedger(clock);
}

class TokenLedger implements Ledger {
  readonly #clock: { now(): number };
  readonly #byToken = new Map<string, Entry>();
  #entries: Entry[] = [];
  /** Many messages have the same one, and each was parsed as a string of its own. */
  readonly #collapseIds = new Map<string, string>();
  readonly #answers = new Map<string, number>();
  #recent: AcceptedMessage[] = [];
  #messages = 0;
  #repeats = 0;
  #notifiedTwice = 0;
  #firstAt: number | undefined;
  #lastAt: number | undefined;
  #second = 0;
  #inSecond = 0;
  #peak = 0;

  constructor(clock: { now(): number }) {
    this.#clock = clock;
  }

  record(message: AcceptedMessage): void {
    this.#time(this.#clock.now());
    this.#recent[this.#messages % keptWhole] = message;
    this.#messages += 1;
    const { token, messageId } = message;
    const collapseId = this.#interned(message.collapseId);
    const entry = this.#byToken.get(token);
    if (entry === undefined) this.#add(token, messageId, collapseId);
    else this.#another(entry, messageId, collapseId);
  }

  answered(name: string): void {
    this.#answers.set(name, (this.#answers.get(name) ?? 0) + 1);
  }

  summary(): LedgerSummary {
    return {
      tokens: this.#entries.length,
      messages: this.#messages,
      repeats: this.#repeats,
      tokensNotifiedTwice: this.#notifiedTwice,
      peakPerSecond: this.#peak,
      firstAt: this.#firstAt ?? null,
      lastAt: this.#lastAt ?? null,
      answers: { OK: this.#messages, ...Object.fromEntries(this.#answers) },
    };
  }

  token(token: string): TokenEntry | undefined {
    const entry = this.#byToken.get(token);
    return entry && shown(entry);
  }

  tokens(after = "", limit = 1000): TokenEntry[] {
    const last = after === "" ? -1 : (this.#byToken.get(after)?.index ?? this.#entries.length);
    return this.#entries.slice(last + 1, last + 1 + limit).map(shown);
  }

  recent(): AcceptedMessage[] {
    const oldest = this.#messages % keptWhole;
    return [...this.#recent.slice(oldest), ...this.#recent.slice(0, oldest)];
  }

  clear(): void {
    this.#byToken.clear();
    this.#entries = [];
    this.#collapseIds.clear();
    this.#answers.clear();
    this.#recent = [];
    this.#messages = this.#repeats = this.#notifiedTwice = 0;
    this.#second = this.#inSecond = this.#peak = 0;
    this.#firstAt = this.#lastAt = undefined;
  }

  #time(now: number): void {
    this.#firstAt ??= now;
    this.#lastAt = now;
    const second = Math.floor(now / 1000);
    if (second !== this.#second) this.#inSecond = 0;
    this.#second = second;
    this.#inSecond += 1;
    if (this.#inSecond > this.#peak) this.#peak = this.#inSecond;
  }

  #interned(collapseId: string | undefined): string | undefined {
    if (collapseId === undefined) return undefined;
    const known = this.#collapseIds.get(collapseId);
    if (known !== undefined) return known;
    this.#collapseIds.set(collapseId, collapseId);
    return collapseId;
  }

  #add(token: string, messageId: string | undefined, collapseId: string | undefined): void {
    const entry: Entry = {
      index: this.#entries.length,
      token,
      count: 1,
      messageId,
      collapseId,
      firstCount: 1,
      more: undefined,
      isNotifiedTwice: false,
    };
    this.#entries.push(entry);
    this.#byToken.set(token, entry);
  }

  #another(entry: Entry, messageId: string | undefined, collapseId: string | undefined): void {
    entry.count += 1;
    if (messageId === undefined) return;
    if (entry.messageId === undefined) {
      entry.messageId = messageId;
      entry.collapseId = collapseId;
      entry.firstCount = 1;
    } else if (entry.messageId === messageId) {
      entry.firstCount += 1;
      this.#repeats += 1;
    } else {
      this.#later(entry, messageId, collapseId);
    }
  }

  #later(entry: Entry, messageId: string, collapseId: string | undefined): void {
    entry.more ??= [];
    const known = entry.more.find((message) => message.messageId === messageId);
    if (known) {
      known.count += 1;
      this.#repeats += 1;
      return;
    }
    const isSame = (other: { collapseId: string | undefined }) => other.collapseId === collapseId;
    if (collapseId !== undefined && !entry.isNotifiedTwice && (isSame(entry) || entry.more.some(isSame))) {
      entry.isNotifiedTwice = true;
      this.#notifiedTwice += 1;
    }
    entry.more.push({ messageId, collapseId, count: 1 });
  }
}

function shown({ token, count, messageId, collapseId, firstCount, more = [] }: Entry): TokenEntry {
  const messages = messageId === undefined ? [] : [{ messageId, collapseId, count: firstCount }, ...more];
  return { token, count, messages: messages.map((message) => ({ ...message })) };
}
