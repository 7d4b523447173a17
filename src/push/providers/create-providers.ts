/** Makes the push providers that the settings list. */
import type { Clock } from "../../platform/base/clock.ts";
import type { Connect } from "../../platform/http2/connection.ts";
import { FrameConnection } from "../../platform/http2/frame-connection.ts";
import type { ProviderName, ProviderSettings } from "../provider-settings.ts";
import { ApnsProvider } from "./apns/apns.ts";
import { FcmProvider } from "./fcm/fcm.ts";
import { OutboxProvider } from "./outbox/outbox.ts";
import type { PushProvider } from "./provider.ts";
import { WebPushProvider } from "./webpush/webpush.ts";

const connect: Connect = (options, listener) => new FrameConnection(options, listener);

/** The providers by name, in the order of the settings. A provider connects when a message is first sent. */
export function createProviders(
  settings: ProviderSettings,
  clock: Clock,
): ReadonlyMap<ProviderName, PushProvider> {
  const providers = settings.names.map((name) => createProvider(name, settings, clock));
  return new Map(providers.map((provider) => [provider.name, provider]));
}

function createProvider(name: ProviderName, settings: ProviderSettings, clock: Clock): PushProvider {
  const { fcm, apns, webpush, outboxFile } = settings;
  if (name === "fcm" && fcm) return new FcmProvider(fcm, clock, connect);
  if (name === "apns" && apns) return new ApnsProvider(apns, clock, connect);
  if (name === "webpush" && webpush) return new WebPushProvider(webpush, clock, connect);
  if (name === "outbox" && outboxFile !== undefined) return new OutboxProvider(outboxFile, clock);
  throw new Error(`The settings list the push provider ${name}, but its own settings are missing.`);
}
