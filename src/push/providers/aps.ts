/** What Apple's devices are sent, over APNs and over FCM: the `aps` dictionary and some headers. */
import { hash } from "node:crypto";
import { collapseIdOf, type NotificationContent } from "./provider.ts";

/**
 * Its members beside the alert; undefined: there are none. In a silent notification Apple wants no other than
 * `content-available`.
 */
export function apsOf(content: NotificationContent): object | undefined {
  const { imageUrl, sound, badge, category, thread, interruptionLevel, silent } = content;
  if (silent) return { "content-available": 1 };
  const members = {
    // It lets an extension of the app fetch the image.
    "mutable-content": imageUrl === undefined ? undefined : 1,
    // A critical alert ignores the mute switch only if its sound says so, too.
    sound: sound !== undefined && interruptionLevel === "critical" ? { critical: 1, name: sound } : sound,
    badge,
    category,
    "thread-id": thread,
    "interruption-level": interruptionLevel,
  };
  return Object.values(members).some((member) => member !== undefined) ? members : undefined;
}

/** `apns-priority`: a silent notification may not have the higher one. */
export const apnsPriority = ({ priority, silent }: NotificationContent): "5" | "10" =>
  silent || priority === "normal" ? "5" : "10";

/** `apns-collapse-id`: a caller's own one is hashed if a header cannot have it, or APNs takes no such length. */
export function apnsCollapseId(content: NotificationContent): string {
  const id = collapseIdOf(content);
  return /^[!-~]{1,64}$/.test(id) ? id : hash("sha256", id, "base64url");
}
