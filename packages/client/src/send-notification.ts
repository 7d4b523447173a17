/** Sends a notification once, however often the request has to be repeated. */
import type { components } from "@gatepost/contracts/push";
import { base64url, type Platform, platformOf, repeated } from "./platform.ts";
import type { PushClient } from "./service-client.ts";

export interface SendOptions {
  /** Of your own, where the program may be restarted in between; at most 255 visible ASCII characters. */
  readonly idempotencyKey?: string;
  /** For so long it is repeated while its outcome is unknown. 60 unless given. */
  readonly repeatSeconds?: number;
  readonly signal?: AbortSignal;
  readonly platform?: Partial<Platform>;
}

/**
 * @throws ProblemError where it is refused; UnavailableError where it is unknown whether it was sent: repeat it with the
 *   same `idempotencyKey` within 24 hours
 */
export function sendNotification(
  push: Pick<PushClient, "request">,
  notification: components["schemas"]["NotificationCreation"],
  options: SendOptions = {},
): Promise<components["schemas"]["CreatedNotification"]> {
  const platform = platformOf(options.platform);
  const { idempotencyKey = base64url(platform.random(18)), repeatSeconds = 60, signal } = options;
  const input = {
    header: { "Idempotency-Key": idempotencyKey },
    body: notification,
    ...(signal && { signal }),
  };
  return repeated(platform, repeatSeconds, () => push.request("createNotification", input), signal);
}
