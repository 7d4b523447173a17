/** The messages that are on their way: sent after the responses of those who ask for them, a bounded number. */
import { overloaded } from "../../platform/base/errors.ts";
import { untraced } from "../../platform/base/tracing.ts";
import { WorkQueue } from "../../platform/base/work-queue.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { SenderSettings } from "../codes-settings.ts";
import type { CodeObserver } from "./code-observer.ts";
import { MessageRefused, type SendMessage, type TextMessage } from "./text-message.ts";
import { createTwilioClient } from "./twilio-client.ts";
import { createWebhookClient } from "./webhook-client.ts";

/** Messages that are being handed over at a time. */
const concurrent = 32;
/** Messages that are handed over or wait for it. What is beyond them is refused before it counts. */
const most = 1_000;
/** Milliseconds that handing over a message may take. */
const timeoutMs = 10_000;

export interface OutgoingMessages {
  /** @throws overloaded if a message would not be taken now */
  refuseIfFull(): void;
  /** Hands the message over once the current work of the process, such as a response, is done. Never throws. */
  send(message: TextMessage): void;
  /** Resolves when every message was handed over or given up. */
  drain(): Promise<void>;
}

interface Dependencies {
  readonly sendMessage: SendMessage;
  readonly observer: Pick<CodeObserver, "message">;
  readonly logger: Logger;
}

/** What the settings name. */
export function senderOf(settings: SenderSettings, logger: Logger): SendMessage {
  switch (settings.kind) {
    case "webhook":
      return createWebhookClient(settings);
    case "twilio":
      return createTwilioClient(settings);
    case "log":
      return async ({ phone, text }) => {
        // For the developer at the terminal; production refuses this sender. The log masks the phone number.
        logger.info({ sms: true }, `Text message to ${phone}: ${text}`);
      };
  }
}

export function createOutgoingMessages({ sendMessage, observer, logger }: Dependencies): OutgoingMessages {
  const queue = new WorkQueue(concurrent);
  const pending = new Set<Promise<void>>();

  async function handOver(message: TextMessage): Promise<void> {
    try {
      await sendMessage(message, AbortSignal.timeout(timeoutMs));
      observer.message("sent");
    } catch (err) {
      const isRefused = err instanceof MessageRefused;
      observer.message(isRefused ? "refused" : "unknown");
      logger.warn(
        { err },
        isRefused ? "A code was refused by what sends it" : "It is not known whether a code was sent",
      );
    }
  }

  return {
    refuseIfFull() {
      if (pending.size >= most) throw overloaded;
    },
    send(message) {
      const { promise, resolve } = Promise.withResolvers<void>();
      pending.add(promise);
      void promise.finally(() => pending.delete(promise));
      setImmediate(() => untraced(() => void queue.run(() => handOver(message)).then(resolve)));
    },
    async drain() {
      while (pending.size > 0) await Promise.all(pending);
    },
  };
}
