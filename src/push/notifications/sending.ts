/** What callers do who send to anyone: they look at what would be sent, send it, and see what became of it. */
import type { Clock } from "../../platform/base/clock.ts";
import { type InputError, invalidInput } from "../../platform/base/errors.ts";
import type { Database } from "../../platform/database/database.ts";
import type { Page, PageRequest } from "../pages.ts";
import type { ProviderName } from "../provider-settings.ts";
import type { LanguagePayload } from "../providers/payload-sizes.ts";
import type { PushWakeUps } from "../queue/work.ts";
import { createAccept } from "./accept-notification.ts";
import type { CountAccepted } from "./acceptance-metrics.ts";
import { kindOf } from "./audience.ts";
import { payloadFindings } from "./payload-findings.ts";
import { type CountedAudience, previewOf } from "./preview.ts";
import { type NotificationRequest, readNotification, type WrittenNotification } from "./read-notification.ts";
import type { RecipientOutcome } from "./recipients.ts";

interface Dependencies {
  readonly db: Database;
  readonly wakeUps: PushWakeUps;
  readonly clock: Clock;
  readonly ttlSeconds: number;
  readonly accepted?: CountAccepted | undefined;
  /** As those of `createAccept`. */
  readonly providers?: readonly ProviderName[];
  /** Undefined: devices show no images. */
  readonly imageBaseUrl: string | undefined;
  /** The sizes of the payloads, with the longest values of variables. */
  readonly payloadsOf: (request: NotificationRequest, now: number) => readonly LanguagePayload[];
  /** Counts the devices of its audience. */
  readonly count: (request: NotificationRequest, now: number) => Promise<CountedAudience>;
  /** Messages a second that each provider takes at the moment; undefined: there is no limit. */
  readonly rates: () => Promise<(provider: ProviderName) => number | undefined>;
  /** Lists what became of each device. @throws `notification_not_found` */
  readonly recipients: (id: string, page: PageRequest) => Promise<Page<RecipientOutcome>>;
}

const noImages = {
  pointer: "/body/content/image",
  message: "is shown nowhere, as the setting PUSH_IMAGE_BASE_URL has no value",
};

export type Sending = ReturnType<typeof createSending>;

export function createSending(dependencies: Dependencies) {
  const { clock, imageBaseUrl, payloadsOf, count, rates, recipients } = dependencies;
  const accept = createAccept(dependencies);

  /** @throws `invalid_request` */
  function read(written: WrittenNotification) {
    const { request, errors, warnings } = readNotification(written, clock.now());
    if (errors.length > 0) throw invalidInput(errors);
    const payloads = payloadsOf(request, clock.now());
    const found = payloadFindings(payloads, written);
    if (found.errors.length > 0) throw invalidInput(found.errors);
    const ofImage = request.content.image !== undefined && imageBaseUrl === undefined ? [noImages] : [];
    return { request, payloads, warnings: [...warnings, ...ofImage, ...found.warnings] };
  }

  return {
    /** What is wrong with a notification beside its schema. */
    problems: (written: WrittenNotification): readonly InputError[] =>
      readNotification(written, clock.now()).errors,

    /**
     * Accepts a notification: when it resolves, the notification is durable and will be sent. Repeated with the same
     * key within 24 hours, it does nothing else and returns the same.
     * @throws `invalid_request`, `idempotency_key_reused`
     */
    async create(clientId: string, written: WrittenNotification, idempotencyKey: string | undefined) {
      const { request, warnings } = read(written);
      const kind = kindOf(request.audience);
      const { notificationId } = await accept({ clientId, kind, request, idempotencyKey });
      return { id: notificationId, warnings };
    },

    /** Stores and sends nothing. @throws `invalid_request` */
    async preview(written: WrittenNotification) {
      const { request, payloads, warnings } = read(written);
      const now = clock.now();
      const [counted, rateOf] = await Promise.all([count(request, now), rates()]);
      return previewOf({ request, counted, payloads, warnings, rateOf, now });
    },

    recipients,
  };
}
