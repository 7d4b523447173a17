/** The responses of APNs: every reason of Apple's table with its status. */
import type { FakeResponse } from "../exchange.ts";

const apnsReasons = {
  BadCollapseId: 400,
  BadDeviceToken: 400,
  BadExpirationDate: 400,
  BadMessageId: 400,
  BadPriority: 400,
  BadTopic: 400,
  DeviceTokenNotForTopic: 400,
  DuplicateHeaders: 400,
  IdleTimeout: 400,
  InvalidPushType: 400,
  MissingDeviceToken: 400,
  MissingTopic: 400,
  PayloadEmpty: 400,
  TopicDisallowed: 400,
  BadCertificate: 403,
  BadCertificateEnvironment: 403,
  ExpiredProviderToken: 403,
  Forbidden: 403,
  InvalidProviderToken: 403,
  MissingProviderToken: 403,
  UnrelatedKeyIdInToken: 403,
  BadPath: 404,
  MethodNotAllowed: 405,
  ExpiredToken: 410,
  Unregistered: 410,
  PayloadTooLarge: 413,
  TooManyProviderTokenUpdates: 429,
  TooManyRequests: 429,
  InternalServerError: 500,
  ServiceUnavailable: 503,
  Shutdown: 503,
} as const;

export type ApnsReason = keyof typeof apnsReasons;

/** The reasons by name. */
export const apnsRows = Object.keys(apnsReasons);

/**
 * @param apnsId `apns-id` of the request; if undefined, the response has none
 * @param timestamp with status 410: since when the token is invalid, in milliseconds since the epoch
 */
export function apnsResponse(
  reason: ApnsReason,
  apnsId: string | undefined,
  timestamp: number,
): FakeResponse {
  const status = apnsReasons[reason];
  const headers = { "content-type": "application/json" };
  return {
    status,
    headers: apnsId === undefined ? headers : { ...headers, "apns-id": apnsId },
    body: JSON.stringify(status === 410 ? { reason, timestamp } : { reason }),
  };
}
