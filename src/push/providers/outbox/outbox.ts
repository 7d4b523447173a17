/**
 * The outbox provider of development mode: instead of sending, it appends each message to a file, one JSON text in each
 * line. Lines are in the order of sending, and a message is in the file before it counts as sent.
 */
import { type FileHandle, mkdir, open } from "node:fs/promises";
import { dirname } from "node:path";
import type { Clock } from "../../../platform/base/clock.ts";
import { codeOf } from "../../../platform/base/error-code.ts";
import { sent } from "../outcomes.ts";
import { dataOf, type NotificationContent, type Outcome, type PushProvider, type Send } from "../provider.ts";

export class OutboxProvider implements PushProvider {
  readonly name = "outbox";
  readonly maxInFlight = 1000;
  readonly #path: string;
  readonly #clock: Clock;
  #file: FileHandle | undefined;
  /** Lines that are written together, in the next write. */
  #lines: string[] = [];
  #written: Promise<Outcome> | undefined;
  /** The last write that was started. */
  #last: Promise<unknown> = Promise.resolve();

  /** @param path of the file, which is created at first use, with its directory */
  constructor(path: string, clock: Clock) {
    this.#path = path;
    this.#clock = clock;
  }

  tokenProblem(token: string): string | undefined {
    return /^[\x20-\x7e]{1,4096}$/.test(token) ? undefined : "must be 1 to 4096 printable ASCII characters";
  }

  prepare(content: NotificationContent): Send {
    const { notificationId, title, message, imageUrl = null, expiresAt: _, link: _link, ...others } = content;
    const shown = { notificationId, title, message, imageUrl, ...others, data: dataOf(content) };
    return ({ token, messageId }) => {
      const time = new Date(this.#clock.now()).toISOString();
      const line = { time, token, messageId, ...shown };
      this.#lines.push(`${JSON.stringify(line)}\n`);
      this.#written ??= this.#writeNext();
      return this.#written;
    };
  }

  /** Writes the lines that have gathered when the previous write ends. */
  async #writeNext(): Promise<Outcome> {
    const before = this.#last;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last = promise;
    await before;
    await new Promise(setImmediate);
    const text = this.#lines.join("");
    this.#lines = [];
    this.#written = undefined;
    try {
      await this.#append(text);
      return sent;
    } catch (error) {
      return { kind: "unavailable", reason: codeOf(error) ?? "the file cannot be written" };
    } finally {
      resolve();
    }
  }

  async #append(text: string): Promise<void> {
    if (this.#file === undefined) {
      await mkdir(dirname(this.#path), { recursive: true, mode: 0o700 });
      this.#file = await open(this.#path, "a", 0o600);
    }
    await this.#file.appendFile(text);
  }

  async close(): Promise<void> {
    await this.#last;
    await this.#file?.close();
    this.#file = undefined;
  }
}
