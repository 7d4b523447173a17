/** A message of FCM, which has a part for each platform that it may reach, and its size. */
import { apnsCollapseId, apnsPriority, apsOf } from "../aps.ts";
import { fitted } from "../content.ts";
import { collapseIdOf, dataOf, type NotificationContent, type PayloadSize } from "../provider.ts";

/** Bytes of a message without its token. */
const maxPayloadBytes = 4096;
/** The longest time to live in seconds: four weeks. */
const maxTtl = 2_419_200;
const messageIdBytes = 36;

/** The request's body around token and message id, which all messages of a chunk share. */
export interface FcmMessage {
  readonly beforeToken: string;
  readonly beforeMessageId: string;
  readonly end: string;
  readonly size: PayloadSize;
}

type Platform = "android" | "apns" | "webpush";
const platforms: readonly Platform[] = ["android", "apns", "webpush"];

/** @param now milliseconds since the epoch */
export function fcmMessage(content: NotificationContent, now: number): FcmMessage {
  const ttl = Math.min(Math.max(Math.ceil((content.expiresAt - now) / 1000), 0), maxTtl);
  const beforeToken = '{"message":{"token":';
  const data = JSON.stringify({ notificationId: content.notificationId, ...dataOf(content) });
  const beforeMessageId = `,"data":${data.slice(0, -1)},"messageId":"`;
  const endOf = (rest: string) => `"},${rest.slice(1)}}`;
  const around = Buffer.byteLength(`${beforeToken}""${beforeMessageId}${endOf("{")}`) + messageIdBytes - 1;
  // A device is sent the part of its platform, and FCM counts what it is sent.
  const bytesOf = (shown: NotificationContent) =>
    around + Math.max(...platforms.map((only) => Buffer.byteLength(restOf(shown, ttl, only))));
  const { content: shown, ...size } = fitted(content, maxPayloadBytes, bytesOf);
  return { beforeToken, beforeMessageId, end: endOf(restOf(shown, ttl)), size };
}

/**
 * A message without token and data, and with the options of one platform only, if that is wanted. A repeat replaces the
 * first message by Android's tag, the web's tag and APNs' collapse id; FCM's `collapse_key` is throttled. Nothing is
 * longer than it must be, as each byte is the text's.
 */
function restOf(content: NotificationContent, ttl: number, only?: Platform): string {
  const { notificationId, title, message, imageUrl, expiresAt, collapseId, silent } = content;
  const { link, sound, badge, channel, priority = "high" } = content;
  const isFor = (platform: Platform) => only === undefined || only === platform;
  const tag = collapseIdOf(content);
  // A count of 0 means one more to Android.
  const android = isFor("android") && { sound, notification_count: badge || undefined, channel_id: channel };
  const aps = isFor("apns") ? apsOf(content) : undefined;
  // FCM opens no app by its scheme.
  const webLink = isFor("webpush") && link?.startsWith("https:") ? { fcm_options: { link } } : undefined;
  const webTag = collapseId ?? notificationId.replaceAll("-", "");
  return JSON.stringify({
    ...(!silent && { notification: { title, body: message, image: imageUrl } }),
    android: { ttl: `${ttl}s`, priority, ...(!silent && { notification: { tag, ...android } }) },
    apns: {
      headers: {
        "apns-collapse-id": apnsCollapseId(content),
        "apns-expiration": String(Math.floor(expiresAt / 1000)),
        ...(silent && { "apns-push-type": "background" }),
        ...(apnsPriority(content) === "5" && { "apns-priority": "5" }),
      },
      ...(aps && { payload: { aps } }),
    },
    webpush: {
      headers: { TTL: String(ttl), ...(priority !== "high" && { Urgency: priority }) },
      ...(!silent && { notification: { tag: webTag } }),
      ...webLink,
    },
  });
}
