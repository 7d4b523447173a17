/**
 * One request over HTTP/2, its response within its limits. The pool chooses the connection and enforces the timeout.
 */
import type { ClientStream, RequestHead, ResponseFields, StreamEnd, StreamListener } from "./connection.ts";

/**
 * Items in the order in which they were added. An item is in one list at most, and can leave it at any time. A `Set`
 * would keep alive what it no longer holds (see base/deadlines.ts).
 */

/** An item that can be in a list. It holds its own place there. */
interface Linked<T extends Linked<T>> {
  /** The list that the item is in; undefined: it is in none. */
  list: LinkedList<T> | undefined;
  previous: T | undefined;
  next: T | undefined;
}

export class LinkedList<T extends Linked<T>> {
  #first: T | undefined;
  #last: T | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get first(): T | undefined {
    return this.#first;
  }

  /** Adds an item that is in no list. */
  add(item: T): void {
    item.list = this;
    item.previous = this.#last;
    if (this.#last) this.#last.next = item;
    else this.#first = item;
    this.#last = item;
    this.#size += 1;
  }

  /** Removes an item that is in this list. */
  remove(item: T): void {
    const { previous, next } = item;
    if (previous) previous.next = next;
    else this.#first = next;
    if (next) next.previous = previous;
    else this.#last = previous;
    item.list = undefined;
    // An item that has left keeps no other item alive.
    item.previous = undefined;
    item.next = undefined;
    this.#size -= 1;
  }

  filter(fits: (item: T) => boolean): T[] {
    const found: T[] = [];
    for (let item = this.#first; item; item = item.next) {
      if (fits(item)) found.push(item);
    }
    return found;
  }
}

/** Most bytes of a response body that are read; then the stream is closed. */
export const maxBodyBytes = 64 * 1024;

/** The result if the peer responded, at least with a status. */
export interface PeerResponse {
  readonly responded: true;
  readonly status: number;
  /** Whether the body arrived, at least its first 64 KiB. False: the connection broke before. */
  readonly isComplete: boolean;
  header(name: string): string | undefined;
  /** A field after the body. */
  trailer(name: string): string | undefined;
  /** The body, cut at 64 KiB, or where the connection broke. */
  body(): Buffer;
  /** The body as UTF-8. */
  text(): string;
}

/** The result if no response came, or only a part of it. */
export interface NoResponse {
  readonly responded: false;
  /**
   * `unreachable`: other requests would fail too. `lost`, `timeout`: the peer may have processed the request.
   * `aborted`: the peer itself ended the exchange early.
   */
  readonly cause: "unreachable" | "lost" | "timeout" | "aborted";
  /** A few words, such as `ECONNREFUSED`; contains nothing of the request. */
  readonly reason: string;
}

export type ExchangeResult = PeerResponse | NoResponse;

/** The callbacks of a session about its requests. */
export interface ExchangeOwner {
  onResponse(): void;
  onEnd(exchange: Exchange, end: StreamEnd): void;
}

/** A request in flight, and then its response. One object is both, as there are ten thousand a second. */
export class Exchange implements PeerResponse, StreamListener, Linked<Exchange> {
  readonly responded = true;
  readonly head: RequestHead;
  readonly requestBody: string | Uint8Array;
  /** When it was requested, by `performance.now()`. */
  readonly requestedAt: number;
  /** On how many streams it was sent, one after the other. */
  tries = 0;
  /** The status of the response; 0 until the peer has responded. */
  status = 0;
  /** The list that it is in, and its neighbours there; undefined: it has ended. */
  list: LinkedList<Exchange> | undefined;
  previous: Exchange | undefined;
  next: Exchange | undefined;
  readonly result: Promise<ExchangeResult>;
  readonly #resolve: (result: ExchangeResult) => void;
  #owner: ExchangeOwner | undefined;
  #stream: ClientStream | undefined;
  #fields: ResponseFields | undefined;
  #trailers: ResponseFields | undefined;
  #parts: Buffer[] | undefined;
  #size = 0;
  #hasEnded = false;

  constructor(head: RequestHead, body: string | Uint8Array) {
    this.head = head;
    this.requestBody = body;
    this.requestedAt = performance.now();
    const { promise, resolve } = Promise.withResolvers<ExchangeResult>();
    this.result = promise;
    this.#resolve = resolve;
  }

  get isComplete(): boolean {
    return this.#hasEnded || this.#size === maxBodyBytes;
  }

  header(name: string): string | undefined {
    return this.#fields?.get(name);
  }

  trailer(name: string): string | undefined {
    return this.#trailers?.get(name);
  }

  body(): Buffer {
    return Buffer.concat(this.#parts ?? []);
  }

  text(): string {
    return this.#parts === undefined ? "" : this.body().toString();
  }

  /** Notes the stream on which it is being sent. */
  begin(stream: ClientStream, owner: ExchangeOwner): void {
    this.#stream = stream;
    this.#owner = owner;
    this.tries += 1;
  }

  /** Ends its stream, if it has one. */
  cancel(): void {
    this.#stream?.cancel();
  }

  onResponse(status: number, fields: ResponseFields): void {
    this.status = status;
    this.#fields = fields;
    this.#owner?.onResponse();
  }

  onData(part: Buffer): void {
    const room = maxBodyBytes - this.#size;
    const taken = part.length > room ? part.subarray(0, room) : part;
    this.#size += taken.length;
    this.#parts ??= [];
    if (taken.length > 0) this.#parts.push(taken);
    if (part.length > room) this.cancel();
  }

  onTrailers(fields: ResponseFields): void {
    this.#trailers = fields;
  }

  onEnd(end: StreamEnd): void {
    this.#stream = undefined;
    this.#hasEnded = end.isComplete;
    this.#owner?.onEnd(this, end);
  }

  /** Ends the exchange with the response. A second end has no effect. */
  succeed(): void {
    this.#resolve(this);
  }

  fail(cause: NoResponse["cause"], reason: string): void {
    this.#resolve({ responded: false, cause, reason });
  }
}
