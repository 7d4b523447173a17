import { createHmac } from "node:crypto";
import type { components } from "../../../gen/openapi/otp-webhook.ts";
import { postMessage } from "./post-message.ts";
import { MessageRefused, type SendMessage } from "./text-message.ts";

interface Settings {
  readonly url: string;
  /** Each is whsec_ and base64. */
  readonly secrets: readonly string[];
}

/** A client of openapi/otp-webhook.yaml, whose requests are signed by the scheme of Standard Webhooks. */
export function createWebhookClient({ url, secrets }: Settings): SendMessage {
  const keys = secrets.map((secret) => Buffer.from(secret.replace(/^whsec_/, ""), "base64"));

  return async ({ id, phone, text, code }, signal) => {
    const at = new Date();
    const event: components["schemas"]["OneTimeCodeEvent"] = {
      type: "otp.message",
      timestamp: at.toISOString(),
      data: { phone, text, code },
    };
    const body = JSON.stringify(event);
    const timestamp = String(Math.floor(at.getTime() / 1000));
    const signatures = keys.map((key) => {
      const mac = createHmac("sha256", key).update(`${id}.${timestamp}.${body}`).digest("base64");
      return `v1,${mac}`;
    });
    const request = new Request(url, {
      method: "POST",
      headers: {
        "Content-Type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signatures.join(" "),
      },
      body,
      signal,
    });
    const { ok, status } = await postMessage(request, "OTP_WEBHOOK_URL");
    if (!ok) throw new MessageRefused(`the webhook's response is ${status}`);
  };
}
