/** From what a caller has said of a notification to what a device shows. */
import type { Content, Delivery, Text } from "../content/content.ts";
import { imageUrl } from "./content.ts";
import type { NotificationContent } from "./provider.ts";

/** What the devices of a notification have in common, whatever their language. */
export interface NotificationToRender {
  readonly id: string;
  readonly content: Content;
  readonly priority: Delivery["priority"];
  readonly collapseId?: string | null | undefined;
  /** Milliseconds since the epoch. */
  readonly expiresAt: number;
}

/**
 * @param imageBaseUrl PUSH_IMAGE_BASE_URL, without a trailing slash; undefined: images are not sent
 * @param text in the device's language, with its user's values; undefined in a silent notification
 */
export function renderedContent(
  { id, content, priority, collapseId, expiresAt }: NotificationToRender,
  imageBaseUrl: string | undefined,
  text: Text | undefined,
): NotificationContent {
  const { link, data, sound, badge, channel, category, thread, interruptionLevel } = content;
  return {
    notificationId: id,
    title: text?.title ?? "",
    message: text?.message ?? "",
    imageUrl: imageUrl(imageBaseUrl, content.image),
    expiresAt,
    ...{ link, data, sound, badge, channel, category, thread, interruptionLevel },
    ...(priority !== "high" && { priority }),
    ...(collapseId && { collapseId }),
    ...(content.silent && { silent: true }),
  };
}
