/** The messages that are on their way: sent after the responses of those who ask for them, a bounded number. */
import { overloaded } from "../../platform/base/errors.ts";
import { untraced } from "../../platform/base/tracing.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import type { SenderSettings } from "../codes-settings.ts";
import type { CodeObserver } from "./code-observer.ts";
import { MessageRefused, type SendMessage, type ShowMessage, type TextMessage } from "./text-message.ts";
import { createTwilioClient } from "./twilio-client.ts";
import { createWebhookClient } from "./webhook-client.ts";

/** Messages that are being handed over at a time, and none waits. What is beyond them is refused before it counts. */
const most = 128;
/** Milliseconds after which it begins: the response is out by then, and takes no longer where there is a message. */
const delayMs = 100;
/** Milliseconds that handing over a message may take, and so how long the end of the process waits for them. */
const timeoutMs = 10_000;

export interface OutgoingMessages {
  /** @throws overloaded if a message would not be taken now */
  refuseIfFull(): void;
  /** Hands the message over a moment later, when the response of who asked for it is out. Never throws. */
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
export function senderOf(settings: SenderSettings, logger: Logger, show?: ShowMessage): SendMessage {
  switch (settings.kind) {
    case "webhook":
      return createWebhookClient(settings);
    case "twilio":
      return createTwilioClient(settings);
    case "log":
      return async (message) => {
        const { phone, text } = message;
        // For the developer at the terminal; production refuses this sender. The log masks the phone number.
        logger.info({ sms: true }, `Text message to ${phone}: ${text}`);
        await show?.(message);
      };
  }
}

export function createOutgoingMessages({ sendMessage, observer, logger }: Dependencies): OutgoingMessages {
  const pending = new Set<Promise<void>>();

  async function handOver(message: TextMessage): Promise<void> {
    try {
      await sendMessage(message, AbortSignal.timeout(timeoutMs));
      observer.message("sent");
    } catch (err) {
      const isRefused = err instanceof MessageRefused;
      observer.message(isRefused ? "refused" : "unknown");
      logger.warn({ err }, isRefused ? "A code was not sent" : "It is not known whether a code was sent");
    }
  }

  return {
    refuseIfFull() {
      if (pending.size >= most) throw overloaded;
    },
    send(message) {
      const handedOver = new Promise<void>((resolve) => {
        setTimeout(() => untraced(() => resolve(handOver(message))), delayMs);
      });
      pending.add(handedOver);
      void handedOver.finally(() => pending.delete(handedOver));
    },
    async drain() {
      while (pending.size > 0) await Promise.all(pending);
    },
  };
}
