/**
 * The messages that a fake has accepted, by token. From it a test or a benchmark can tell which device got which
 * message, and how often. Designed for a million tokens: one small record each, in the order of their first
 * message.
 */

import type { Connection, Exchange } from "./exchange.ts";

/** How many of the newest messages are kept with their payload. */
const maxRecent = 100;

/** An accepted message. */
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

/** A message id that was sent to a token, and how often. */
interface TokenMessage {
  readonly messageId: string;
  readonly collapseId: string | undefined;
  readonly count: number;
  /** When it first arrived, in milliseconds since the epoch; `lastAt`: when it last arrived. */
  readonly firstAt: number;
  readonly lastAt: number;
}

/**
 * How a message arrived last. Times are milliseconds since the ledger's first message: small numbers, which take no
 * memory of their own.
 */
export interface Arrival {
  lastAt: number;
  /** When the fake responded; -1: it has not. */
  answeredAt: number;
  /** The connection of the request; undefined: the message was recorded without one. */
  connection: Connection | undefined;
  /** The request, until the fake has responded: one for each message would take a lot of memory. */
  request: ArrivedRequest | undefined;
}

/** The request that a message came with. */
type ArrivedRequest = Pick<Exchange, "connection" | "isOpen">;

/** A message that arrived again, and what had become of it the time before. Times are milliseconds since the epoch. */
export interface Repeat {
  readonly token: string;
  readonly messageId: string;
  readonly collapseId: string | undefined;
  readonly at: number;
  readonly before: {
    readonly at: number;
    /** When the fake responded; null: it has not. */
    readonly answeredAt: number | null;
    /** When its connection ended; null: it has not. Up to then the response may have been lost. */
    readonly endedAt: number | null;
    /** Whether its sender still waited for a response when the message came again: then two were sending it at once. */
    readonly isPending: boolean;
  };
}

/** The accepted messages of one token. */
interface TokenEntry {
  readonly token: string;
  /** Messages, repeats included. */
  readonly count: number;
  /** One for each message id, in the order of arrival. */
  readonly messages: readonly TokenMessage[];
}

interface LedgerSummary {
  /** Tokens that have at least one message. */
  readonly tokens: number;
  /** Messages accepted, repeats included. */
  readonly messages: number;
  /** Messages whose id had been sent to the same token before. */
  readonly repeats: number;
  /** Tokens with messages of different ids and the same collapse id: devices that were notified twice. */
  readonly tokensNotifiedTwice: number;
  /** Most messages accepted within one second of the clock. */
  readonly peakPerSecond: number;
  /** When the first message arrived, in milliseconds since the epoch; null as long as there is none. */
  readonly firstAt: number | null;
  readonly lastAt: number | null;
  /** How often each response and fault was given, by its name; `OK` stands for accepted messages. */
  readonly answers: Readonly<Record<string, number>>;
}

export interface Ledger {
  record(message: AcceptedMessage, request?: ArrivedRequest): Arrival;
  /** Records that the fake has responded to the message. */
  recordResponse(arrival: Arrival): void;
  /** Counts a response or fault, by its name. */
  countResponse(name: string): void;
  summary(): LedgerSummary;
  /** Undefined if the token has no message. */
  token(token: string): TokenEntry | undefined;
  /**
   * A page of tokens, in the order of their first message.
   * @param after the last token of the previous page; empty for the first page. An unknown token: no entries
   */
  tokens(after?: string, limit?: number): TokenEntry[];
  /** The repeats of messages in the order of arrival, an entry for each time that a message arrived again. */
  repeats(): Repeat[];
  /** The last 100 accepted messages, the newest last. */
  recent(): AcceptedMessage[];
  clear(): void;
}

interface Message extends Arrival {
  readonly messageId: string;
  readonly collapseId: string | undefined;
  count: number;
  readonly firstAt: number;
}

/** The first message id is a field of the record itself, because most tokens have no second one. */
interface Entry extends Arrival {
  readonly index: number;
  readonly token: string;
  count: number;
  messageId: string | undefined;
  collapseId: string | undefined;
  firstCount: number;
  firstAt: number;
  more: Message[] | undefined;
  isNotifiedTwice: boolean;
}

/** A repeat, with the time before as it was then. */
interface KeptRepeat {
  readonly token: string;
  readonly messageId: string;
  readonly collapseId: string | undefined;
  readonly at: number;
  readonly before: Readonly<Omit<Arrival, "request">> & { readonly isPending: boolean };
}

/** An empty ledger. */
export function createLedger(clock: { now(): number }): Ledger {
  return new TokenLedger(clock);
}

class TokenLedger implements Ledger {
  readonly #clock: { now(): number };
  readonly #byToken = new Map<string, Entry>();
  #entries: Entry[] = [];
  /** Interned: many messages have the same collapse id, each parsed to a separate string. */
  readonly #collapseIds = new Map<string, string>();
  readonly #responses = new Map<string, number>();
  #recent: AcceptedMessage[] = [];
  #repeats: KeptRepeat[] = [];
  #messages = 0;
  #notifiedTwice = 0;
  #firstAt: number | undefined;
  #lastAt: number | undefined;
  #second = 0;
  #inSecond = 0;
  #peak = 0;

  constructor(clock: { now(): number }) {
    this.#clock = clock;
  }

  record(message: AcceptedMessage, request?: ArrivedRequest): Arrival {
    const at = this.#time(this.#clock.now());
    this.#recent[this.#messages % maxRecent] = message;
    this.#messages += 1;
    const { token, messageId } = message;
    const collapseId = this.#interned(message.collapseId);
    const entry = this.#byToken.get(token);
    const arriving: Arriving = { collapseId, at, connection: request?.connection, request };
    if (entry === undefined) return this.#addToken(token, messageId, arriving);
    return this.#addMessage(entry, messageId, arriving);
  }

  recordResponse(arrival: Arrival): void {
    arrival.answeredAt = this.#clock.now() - (this.#firstAt ?? 0);
    arrival.request = undefined;
  }

  countResponse(name: string): void {
    this.#responses.set(name, (this.#responses.get(name) ?? 0) + 1);
  }

  summary(): LedgerSummary {
    return {
      tokens: this.#entries.length,
      messages: this.#messages,
      repeats: this.#repeats.length,
      tokensNotifiedTwice: this.#notifiedTwice,
      peakPerSecond: this.#peak,
      firstAt: this.#firstAt ?? null,
      lastAt: this.#lastAt ?? null,
      answers: { OK: this.#messages, ...Object.fromEntries(this.#responses) },
    };
  }

  token(token: string): TokenEntry | undefined {
    const entry = this.#byToken.get(token);
    return entry && this.#entryOf(entry);
  }

  tokens(after = "", limit = 1000): TokenEntry[] {
    const last = after === "" ? -1 : (this.#byToken.get(after)?.index ?? this.#entries.length);
    return this.#entries.slice(last + 1, last + 1 + limit).map((entry) => this.#entryOf(entry));
  }

  repeats(): Repeat[] {
    const start = this.#firstAt ?? 0;
    return this.#repeats.map(({ at, before: { lastAt, answeredAt, connection, isPending }, ...repeat }) => ({
      ...repeat,
      at: start + at,
      before: {
        at: start + lastAt,
        answeredAt: answeredAt < 0 ? null : start + answeredAt,
        endedAt: connection?.endedAt ?? null,
        isPending,
      },
    }));
  }

  recent(): AcceptedMessage[] {
    const oldest = this.#messages % maxRecent;
    return [...this.#recent.slice(oldest), ...this.#recent.slice(0, oldest)];
  }

  clear(): void {
    this.#byToken.clear();
    this.#entries = [];
    this.#collapseIds.clear();
    this.#responses.clear();
    this.#recent = [];
    this.#repeats = [];
    this.#messages = this.#notifiedTwice = 0;
    this.#second = this.#inSecond = this.#peak = 0;
    this.#firstAt = this.#lastAt = undefined;
  }

  /** @returns milliseconds since the first message */
  #time(now: number): number {
    this.#firstAt ??= now;
    this.#lastAt = now;
    const second = Math.floor(now / 1000);
    if (second !== this.#second) this.#inSecond = 0;
    this.#second = second;
    this.#inSecond += 1;
    if (this.#inSecond > this.#peak) this.#peak = this.#inSecond;
    return now - this.#firstAt;
  }

  #interned(collapseId: string | undefined): string | undefined {
    if (collapseId === undefined) return undefined;
    const known = this.#collapseIds.get(collapseId);
    if (known !== undefined) return known;
    this.#collapseIds.set(collapseId, collapseId);
    return collapseId;
  }

  #addToken(token: string, messageId: string | undefined, arriving: Arriving): Entry {
    const { collapseId, at, connection, request } = arriving;
    const entry: Entry = {
      index: this.#entries.length,
      token,
      count: 1,
      messageId,
      collapseId,
      firstCount: 1,
      firstAt: at,
      lastAt: at,
      answeredAt: -1,
      connection,
      request,
      more: undefined,
      isNotifiedTwice: false,
    };
    this.#entries.push(entry);
    this.#byToken.set(token, entry);
    return entry;
  }

  #addMessage(entry: Entry, messageId: string | undefined, arriving: Arriving): Arrival {
    entry.count += 1;
    if (messageId === undefined) return entry;
    if (entry.messageId === undefined) {
      entry.messageId = messageId;
      entry.collapseId = arriving.collapseId;
      entry.firstCount = 1;
      entry.firstAt = arriving.at;
      arrive(entry, arriving);
      return entry;
    }
    if (entry.messageId !== messageId) return this.#addOtherMessage(entry, messageId, arriving);
    entry.firstCount += 1;
    this.#addRepeat(entry.token, messageId, entry, arriving);
    return entry;
  }

  #addOtherMessage(entry: Entry, messageId: string, arriving: Arriving): Arrival {
    const { collapseId, at, connection, request } = arriving;
    entry.more ??= [];
    const known = entry.more.find((message) => message.messageId === messageId);
    if (known) {
      known.count += 1;
      this.#addRepeat(entry.token, messageId, known, arriving);
      return known;
    }
    const isSame = (other: { collapseId: string | undefined }) => other.collapseId === collapseId;
    if (collapseId !== undefined && !entry.isNotifiedTwice && (isSame(entry) || entry.more.some(isSame))) {
      entry.isNotifiedTwice = true;
      this.#notifiedTwice += 1;
    }
    const message: Message = {
      messageId,
      collapseId,
      count: 1,
      firstAt: at,
      lastAt: at,
      answeredAt: -1,
      connection,
      request,
    };
    entry.more.push(message);
    return message;
  }

  #addRepeat(token: string, messageId: string, known: Arrival, arriving: Arriving): void {
    const { lastAt, answeredAt, connection, request } = known;
    const { collapseId, at } = arriving;
    const before = { lastAt, answeredAt, connection, isPending: request?.isOpen ?? false };
    this.#repeats.push({ token, messageId, collapseId, at, before });
    arrive(known, arriving);
  }

  #entryOf(entry: Entry): TokenEntry {
    const { token, count, messageId, collapseId, firstCount, firstAt, lastAt, more = [] } = entry;
    const start = this.#firstAt ?? 0;
    const all =
      messageId === undefined ? [] : [{ messageId, collapseId, count: firstCount, firstAt, lastAt }, ...more];
    const messages = all.map((one) => ({
      messageId: one.messageId,
      collapseId: one.collapseId,
      count: one.count,
      firstAt: start + one.firstAt,
      lastAt: start + one.lastAt,
    }));
    return { token, count, messages };
  }
}

/** The facts about a message when it arrives. */
interface Arriving {
  readonly collapseId: string | undefined;
  readonly at: number;
  readonly connection: Connection | undefined;
  readonly request: ArrivedRequest | undefined;
}

function arrive(known: Arrival, { at, connection, request }: Arriving): void {
  known.lastAt = at;
  known.answeredAt = -1;
  known.connection = connection;
  known.request = request;
}
