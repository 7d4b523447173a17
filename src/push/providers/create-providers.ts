/** Makes the push providers that the settings list. */
import type { Clock } from "../../platform/base/clock.ts";
import type { ProviderName, ProviderSettings } from "../provider-settings.ts";
import { ApnsProvider } from "./apns/apns.ts";
import { FcmProvider } from "./fcm/fcm.ts";
import { OutboxProvider } from "./outbox/outbox.ts";
import type { PushProvider } from "./provider.ts";
import { WebPushProvider } from "./webpush/webpush.ts";

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
  if (name === "fcm" && fcm) return new FcmProvider(fcm, clock);
  if (name === "apns" && apns) return new ApnsProvider(apns, clock);
  if (name === "webpush" && webpush) return new WebPushProvider(webpush, clock);
  if (name === "outbox" && outboxFile !== undefined) return new OutboxProvider(outboxFile, clock);
  throw new Error(`The settings list the push provider ${name}, but its own settings are missing.`);
}
