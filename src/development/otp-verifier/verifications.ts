/**
 * One-time codes and their rules. All state is in memory and ends with the process, because this verifier
 * only replaces a real one in development mode. All phone numbers here are canonical.
 */
import { createHash, randomInt, timingSafeEqual } from "node:crypto";
import { LRUCache } from "lru-cache";
import type { Clock } from "../../platform/base/clock.ts";
import { ErrorKinds, ServiceError } from "../../platform/base/errors.ts";

/** Seconds that a code is valid. */
export const codeSeconds = 300;
/** Wrong tries that invalidate a code. */
const maxWrongTries = 5;
/** Milliseconds for which a confirmed code counts as a check passed just now. */
const passMs = 120_000;
/** The most codes that are sent to a phone within `sendWindowMs`. */
const maxSends = 5;
const sendWindowMs = 60_000;
/** Phones that are stored; beyond that, those used least recently are dropped. */
const maxPhones = 10_000;
/** Messages that are stored for a phone. */
const maxMessages = 10;

/** A text message that would have been sent. */
export interface Message {
  readonly phone: string;
  readonly code: string;
  readonly sentAt: Date;
}

interface Verification {
  /** Undefined if it was used or invalidated, or none was sent. */
  code: { readonly text: string; readonly expiresAt: number; wrongTries: number } | undefined;
  /** Until when a check without a code succeeds; milliseconds since the epoch. */
  passedUntil: number;
  /** The newest first. */
  messages: readonly Message[];
}

export interface Verifications {
  /**
   * Makes a new code for the phone and invalidates the previous one.
   * @throws too_many_requests
   */
  start(phone: string): Message;
  /** Whether the code is right; a right one works once. */
  check(phone: string, code: string): boolean;
  /** As `check`; after a right code, `takePass` succeeds once within two minutes. */
  confirm(phone: string, code: string): boolean;
  /** Whether a code of the phone was confirmed just now; true only once for each confirmation. */
  takePass(phone: string): boolean;
  /** Shows a message that another has sent; its code is not of these verifications. */
  show(message: Message): void;
  /** The messages to the phone, the newest first. */
  messages(phone: string): readonly Message[];
}

/** An empty set of verifications. */
export function createVerifications(clock: Clock): Verifications {
  const phones = new LRUCache<string, Verification>({ max: maxPhones });

  function check(phone: string, code: string): boolean {
    const verification = phones.get(phone);
    const sent = verification?.code;
    if (!verification || !sent || clock.now() >= sent.expiresAt) return false;
    const isRight = isSame(sent.text, code);
    if (!isRight) sent.wrongTries += 1;
    if (isRight || sent.wrongTries >= maxWrongTries) verification.code = undefined;
    return isRight;
  }

  function show(message: Message, code = phones.get(message.phone)?.code): void {
    const { passedUntil, messages } = phones.get(message.phone) ?? { passedUntil: 0, messages: [] };
    const shown = [message, ...messages].slice(0, maxMessages);
    phones.set(message.phone, { code, passedUntil, messages: shown });
  }

  return {
    start(phone) {
      const now = clock.now();
      refuseTooMany(phones.get(phone)?.messages ?? [], now);
      const text = randomInt(1_000_000).toString().padStart(6, "0");
      const message = { phone, code: text, sentAt: new Date(now) };
      show(message, { text, expiresAt: now + codeSeconds * 1000, wrongTries: 0 });
      return message;
    },
    show: (message) => show(message),
    check,
    confirm(phone, code) {
      if (!check(phone, code)) return false;
      const verification = phones.get(phone);
      if (verification) verification.passedUntil = clock.now() + passMs;
      return true;
    },
    takePass(phone) {
      const verification = phones.get(phone);
      if (!verification || clock.now() >= verification.passedUntil) return false;
      verification.passedUntil = 0;
      return true;
    },
    messages: (phone) => phones.get(phone)?.messages ?? [],
  };
}

function refuseTooMany(messages: readonly Message[], now: number): void {
  const first = messages[maxSends - 1];
  const waitMs = first ? first.sentAt.getTime() + sendWindowMs - now : 0;
  if (waitMs <= 0) return;
  const seconds = Math.ceil(waitMs / 1000);
  throw new ServiceError(
    ErrorKinds.tooManyRequests,
    `Codes are sent to this phone too often. Wait ${seconds} seconds and try again.`,
    { retryAfterSeconds: seconds },
  );
}

/** Compares in constant time, also texts of different lengths. */
function isSame(text: string, other: string): boolean {
  const digest = (value: string) => createHash("sha256").update(value).digest();
  return timingSafeEqual(digest(text), digest(other));
}
