/**
 * The address of this room: starts fakes of the push providers, one by one for a test, or all of them with
 * their control port for whoever wants to see messages arrive without the real ones.
 */
import { type ApnsFake, type ApnsFakeOptions, startApnsFake as apns } from "./apns/apns.ts";
import { type ControlledFakes, type ControlPort, startControlPort } from "./control.ts";
import { type FcmFake, type FcmFakeOptions, startFcmFake as fcm } from "./fcm/fcm.ts";
import type { KeptCredentials } from "./kept-credentials.ts";
import type { ListenerOptions } from "./listener.ts";
import type { FakeProvider } from "./running-fake.ts";
import { type WebPushFake, type WebPushFakeOptions, startWebPushFake as webPush } from "./webpush/webpush.ts";

export type { ApnsReason } from "./apns/apns-answers.ts";
export type { ApnsCredentials, ServiceAccount, VapidCredentials } from "./credentials.ts";
export type { FcmRow } from "./fcm/fcm-answers.ts";
export type { AcceptedMessage, Ledger, LedgerSummary, TokenEntry, TokenMessage } from "./ledger.ts";
export type { ListenerOptions } from "./listener.ts";
export type { FakeProvider, RunningFake } from "./running-fake.ts";
export type { CustomAnswer, Fault, Scenario } from "./scenario.ts";
export type { Playing } from "./stage.ts";
export type { PushSubscription } from "./webpush/subscriptions.ts";
export type { WebPushRow } from "./webpush/webpush-answers.ts";
export type { ApnsFake, ApnsFakeOptions, FcmFake, FcmFakeOptions, WebPushFake, WebPushFakeOptions };

/** Starts a fake of FCM HTTP v1 with its token endpoint. */
export const startFcmFake: (options?: FcmFakeOptions) => Promise<FcmFake> = fcm;
/** Starts a fake of APNs. */
export const startApnsFake: (options?: ApnsFakeOptions) => Promise<ApnsFake> = apns;
/** Starts a fake of a Web Push service with its browsers. */
export const startWebPushFake: (options?: WebPushFakeOptions) => Promise<WebPushFake> = webPush;

export interface ProviderFakesOptions extends Pick<ListenerOptions, "host" | "publicHost" | "tls"> {
  /** Any free port unless given. */
  readonly ports?: Readonly<Partial<Record<FakeProvider | "control", number>>>;
  /** New ones unless given. */
  readonly credentials?: KeptCredentials;
}

/** All fakes and their control port. */
export interface ProviderFakes extends ControlledFakes {
  readonly control: ControlPort;
  close(): Promise<void>;
}

/**
 * Starts all of them; or none, if one of the ports cannot be had.
 * @throws what listening throws (EADDRINUSE, EACCES)
 */
export async function startProviderFakes(options: ProviderFakesOptions = {}): Promise<ProviderFakes> {
  const { ports = {}, credentials, ...where } = options;
  const closing: (() => Promise<void>)[] = [];
  const close = async () => void (await Promise.all(closing.map((one) => one())));
  async function started<T extends { close(): Promise<void> }>(starting: Promise<T>): Promise<T> {
    const running = await starting;
    closing.push(running.close);
    return running;
  }
  const at = (provider: FakeProvider): ListenerOptions => ({ ...where, port: ports[provider] ?? 0 });
  try {
    const { serviceAccount, apns: apnsCredentials, vapid, seed } = credentials ?? {};
    const fakes: ControlledFakes = {
      fcm: await started(fcm({ ...at("fcm"), ...(serviceAccount && { serviceAccount }) })),
      apns: await started(apns({ ...at("apns"), ...(apnsCredentials && { credentials: apnsCredentials }) })),
      webpush: await started(
        webPush({
          ...at("webpush"),
          ...(vapid && { credentials: vapid }),
          ...(seed && { seed: Buffer.from(seed, "base64url") }),
        }),
      ),
    };
    const control = await started(startControlPort(fakes, ports.control ?? 0));
    return { ...fakes, control, close };
  } catch (error) {
    await close();
    throw error;
  }
}
