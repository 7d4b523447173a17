/** What the tests of the senders share: content, recipients, and senders of the fakes. */
import { randomUUID } from "node:crypto";
import type { ApnsFake } from "../../../src/development/provider-fakes/apns/apns.ts";
import type { FcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import type { WebPushFake } from "../../../src/development/provider-fakes/webpush/webpush.ts";
import type { Clock } from "../../../src/platform/base/clock.ts";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { vapidKeyOf } from "../../../src/push/provider-key-settings.ts";
import { ApnsProvider } from "../../../src/push/providers/apns/apns.ts";
import { FcmProvider } from "../../../src/push/providers/fcm/fcm.ts";
import type {
  NotificationContent,
  Outcome,
  PushProvider,
  Recipient,
} from "../../../src/push/providers/provider.ts";
import { WebPushProvider } from "../../../src/push/providers/webpush/webpush.ts";
import { http2Clients } from "../../support/http2-clients.ts";

/** The senders are tested with our client of HTTP/2, and with Node's where `TEST_HTTP2_CLIENT=node`. */
const connect = process.env["TEST_HTTP2_CLIENT"] === "node" ? http2Clients.node : http2Clients.own;

export function content(changes: Partial<NotificationContent> = {}): NotificationContent {
  return {
    notificationId: randomUUID(),
    title: "Grüße",
    message: 'Sagt "hallo" 👋',
    imageUrl: "https://images.example.com/push/summer.jpg",
    expiresAt: Date.now() + 3_600_000,
    ...changes,
  };
}

export function recipient(token: string): Recipient {
  return { token, messageId: randomUUID() };
}

export function sendOne(provider: PushProvider, token: string): Promise<Outcome> {
  return provider.prepare(content())(recipient(token));
}

/** How often each kind of outcome came. */
export function kindsOf(outcomes: readonly Outcome[]): Partial<Record<Outcome["kind"], number>> {
  const counts: Partial<Record<Outcome["kind"], number>> = {};
  for (const { kind } of outcomes) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
}

export function fcmOf({ origin, credentials }: FcmFake, clock: Clock = systemClock): FcmProvider {
  const account = {
    projectId: credentials.project_id,
    privateKeyId: credentials.private_key_id,
    privateKey: credentials.private_key,
    clientEmail: credentials.client_email,
    tokenUri: credentials.token_uri,
  };
  return new FcmProvider({ endpoint: origin, account }, clock, connect);
}

export function apnsOf({ origin, credentials }: ApnsFake, clock: Clock = systemClock): ApnsProvider {
  const { privateKey: key, keyId, teamId, topic } = credentials;
  return new ApnsProvider({ endpoint: origin, key, keyId, teamId, topic }, clock, connect);
}

export function webPushOf(
  { origin, credentials }: WebPushFake,
  clock: Clock = systemClock,
  allowedHosts: readonly string[] = [origin],
): WebPushProvider {
  const { privateKey, subject } = credentials;
  const settings = { vapidKeys: [vapidKeyOf(privateKey)], subject, allowedHosts };
  return new WebPushProvider(settings, clock, connect);
}
