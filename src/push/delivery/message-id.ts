import { hash } from "node:crypto";

/**
 * The id of the message of this notification to this device. It is the same each time the message is sent, so that
 * repeats can be recognized. A UUID of version 8 (RFC 9562 section 5.8), lower case.
 */
export function messageId(notificationId: string, deviceId: number): string {
  const hex = hash("sha256", `${notificationId}/${deviceId}`, "hex");
  const variant = "89ab".charAt(Number.parseInt(hex.charAt(16), 16) & 3);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-${variant}${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}
