/**
 * All fakes of the push providers with their control port, for development and benchmarks. A test starts only
 * the fake that it needs.
 */
import { startApnsFake } from "./apns/apns.ts";
import { type ControlledFakes, type ControlPort, startControlPort } from "./control.ts";
import { startFcmFake } from "./fcm/fcm.ts";
import type { ListenerOptions } from "./listener.ts";
import type { FakeProvider } from "./running-fake.ts";
import type { StoredCredentials } from "./stored-credentials.ts";
import { startWebPushFake } from "./webpush/webpush.ts";

interface ProviderFakesOptions extends Pick<ListenerOptions, "host" | "publicHost" | "tls"> {
  /** Any free port by default. */
  readonly ports?: Readonly<Partial<Record<FakeProvider | "control", number>>>;
  /** New ones by default. */
  readonly credentials?: StoredCredentials;
}

/** All fakes and their control port. */
export interface ProviderFakes extends ControlledFakes {
  readonly control: ControlPort;
  close(): Promise<void>;
}

/**
 * Starts all fakes; or none, if one of the ports is not available.
 * @throws the error of `listen` (EADDRINUSE, EACCES)
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
    const { serviceAccount, apns, vapid, seed } = credentials ?? {};
    const fakes: ControlledFakes = {
      fcm: await started(startFcmFake({ ...at("fcm"), ...(serviceAccount && { serviceAccount }) })),
      apns: await started(startApnsFake({ ...at("apns"), ...(apns && { credentials: apns }) })),
      webpush: await started(
        startWebPushFake({
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
