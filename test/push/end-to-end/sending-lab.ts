/**
 * The push service as its operators, its users' devices and its providers see it: over HTTP, by its log, its metrics
 * and its traces, and by the messages that arrive. How work waits, is taken and is given back is not known here.
 */
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ApnsFake, startApnsFake } from "../../../src/development/provider-fakes/apns/apns.ts";
import { type FcmFake, startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";
import type { Database } from "../../../src/platform/database/database.ts";
import { createMetrics, type Metrics } from "../../../src/platform/observability/metrics.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { type DeliveryRules, deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import { devices as deviceTable } from "../../../src/push/schema.ts";
import { createPushService, type PushService } from "../../../src/push/service.ts";
import { readSettings } from "../../../src/services.ts";
import { type CapturedLog, captureLog } from "../../support/captured-log.ts";
import { serveApp } from "../../support/http-app.ts";
import type { Backend, Environment } from "../../support/servers.ts";
import { createMigratedServiceDatabase } from "../../support/service-database.ts";
import { type Issuer, newKey, type SigningKey, startIssuer } from "../callers/issuer.ts";
import { type Operator, operatorOf } from "./operator.ts";

/** The user of test runs. */
export const testUser = "tester";

/** Times that a test waits for, shorter than a deployment's. */
const quickRules: Partial<DeliveryRules> = {
  firstRetryMs: 100,
  longestRetryMs: 400,
  firstPauseMs: 300,
  longestPauseMs: 600,
};

interface Device {
  readonly token: string;
  /** A user of its own unless given. */
  readonly userId?: string;
  /** Minutes; 0 unless given. */
  readonly utcOffset?: number;
  readonly provider?: "fcm" | "apns";
}

/** What one process has of the push service. */
export interface PushInstance extends Operator {
  readonly service: PushService;
  readonly metrics: Metrics;
  /** As a process that ends: messages in flight finish, and the rest is left to others. */
  stop(): Promise<void>;
}

interface InstanceOptions {
  readonly env?: Environment;
  /** Only takes requests: plans and sends nothing. */
  readonly isIdle?: boolean;
}

export interface SendingLab extends AsyncDisposable {
  readonly backend: Backend;
  readonly fcm: FcmFake;
  readonly apns: ApnsFake;
  /** Of all instances. */
  readonly log: CapturedLog;
  /** Errors in the log so far. */
  errors(): number;
  /** The database, by the instance that was started last. */
  readonly db: Database;
  /** Another process on the same database; an embedded one has one process at a time. */
  start(options?: InstanceOptions): Promise<PushInstance>;
  addDevices(devices: readonly Device[]): Promise<void>;
  /**
   * A minute passes, for the processes and for an embedded database. What must not be overtaken by it is at rest: time
   * that is measured, and not looked up, stays where it is.
   */
  passMinute(): void;
}

/** Devices of as many users, in turn at these offsets: each offset gives chunks of its own. */
export function devicesAt(offsets: readonly number[], count: number, name: string): Device[] {
  return Array.from({ length: count }, (_, index) => ({
    token: `${name}-${index}`,
    utcOffset: offsets[index % offsets.length] ?? 0,
  }));
}

/** As many offsets as a send may name at most, from the west to the east. */
export const offsetsFrom = (first: number, count: number): number[] =>
  Array.from({ length: count }, (_, index) => first + 15 * index);

/** The same, of Apple's. */
export const appleDevicesAt = (offsets: readonly number[], count: number, name: string): Device[] =>
  devicesAt(offsets, count, name).map((device) => ({
    ...device,
    ...{
      userId: device.token,
      token: createHash("sha256").update(device.token).digest("hex"),
      provider: "apns",
    },
  }));

/** @param rules times and thresholds that differ from {@link quickRules}, for all instances of the process until the end */
export async function createSendingLab(
  backend: Backend,
  rules: Partial<DeliveryRules> = {},
): Promise<SendingLab> {
  await using cleanup = new AsyncDisposableStack();
  const former = { ...deliveryRules };
  Object.assign(deliveryRules, quickRules, rules);
  cleanup.defer(() => void Object.assign(deliveryRules, former));
  const own = await createMigratedServiceDatabase(backend, pushMigrations);
  cleanup.defer(() => own.drop());
  const dataDir = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  cleanup.defer(() => rmSync(dataDir, { recursive: true, force: true }));
  const [fcm, apns, issuer] = await Promise.all([startFcmFake(), startApnsFake(), startIssuer()]);
  for (const one of [fcm, apns]) cleanup.defer(() => one.close());
  cleanup.defer(() => issuer.stop());
  const key = newKey("key");
  issuer.keys = [key];
  const log = captureLog();
  const environment = environmentOf(issuer, fcm, apns, dataDir);
  const instances = new Set<PushInstance>();
  cleanup.defer(async () => void (await Promise.all([...instances].map((instance) => instance.stop()))));
  let database: Database | undefined;
  const now = Date.now;
  let passedMs = 0;
  cleanup.defer(() => {
    Date.now = now;
  });

  async function start({ env = {}, isIdle = false }: InstanceOptions = {}): Promise<PushInstance> {
    await using starting = new AsyncDisposableStack();
    const { push } = await readSettings({ ...environment, ...env });
    if (!push) throw new Error("push does not run");
    const metrics = createMetrics("gatepost", "1.2.3");
    const service = await createPushService({
      settings: { ...push, database: own.settings },
      ...{ logger: log.logger, eventLog: undefined, metrics, validateResponses: true },
    });
    starting.defer(() => service.stop(20_000));
    await service.prepare();
    if (!isIdle) service.startWorkers();
    const app = await serveApp(service.http.app);
    starting.defer(() => app.close());
    const backofficeToken = async () => operatorToken(issuer, key);
    const operator = await operatorOf({ base: `${app.origin}/api`, backofficeToken });
    database = service.database.db;
    const started = starting.move();
    const instance = { ...operator, service, metrics, stop: () => started.disposeAsync() };
    instances.add(instance);
    return instance;
  }

  const all = cleanup.move();
  const lab: SendingLab = {
    ...{ backend, fcm, apns, log, start },
    errors: () => log.lines().filter(({ level }) => level === "error").length,
    get db() {
      if (!database) throw new Error("no instance was started");
      return database;
    },
    async addDevices(devices) {
      const step = 1_000;
      for (let first = 0; first < devices.length; first += step) {
        const values = devices.slice(first, first + step).map(rowOf);
        await lab.db.insert(deviceTable).values(values);
      }
    },
    passMinute() {
      if (backend !== "PGlite") throw new Error("the clock of a PostgreSQL server is its own");
      passedMs += 61_000;
      Date.now = () => now() + passedMs;
    },
    [Symbol.asyncDispose]: () => all.disposeAsync(),
  };
  return lab;
}

function environmentOf({ issuer }: Issuer, fcm: FcmFake, apns: ApnsFake, dataDir: string): Environment {
  return {
    ...{ DATA_DIR: dataDir, SERVICES: "push", TEST_NOTIFICATION_USER_IDS: testUser },
    ...{ IDENTITY_PROVIDER_ISSUER_URI: issuer, TOKEN_AUDIENCE: "push" },
    ...{ PLATFORM_SECURITY_URL: "", PLATFORM_SECURITY_API_KEY: "" },
    ...{ PUSH_PROVIDERS: "fcm,apns", PUSH_REMOVAL_DELAY_SECONDS: "3600" },
    ...{ FCM_ENDPOINT: fcm.origin, FCM_CREDENTIALS: JSON.stringify(fcm.credentials) },
    ...{ APNS_ENDPOINT: apns.origin, APNS_KEY: apns.credentials.privateKey },
    ...{ APNS_KEY_ID: apns.credentials.keyId, APNS_TEAM_ID: apns.credentials.teamId },
    APNS_TOPIC: apns.credentials.topic,
  };
}

function operatorToken(issuer: Issuer, key: SigningKey): string {
  const claims = { sub: "operator", client_id: "backoffice", aud: ["push"] };
  return issuer.token(key, Date.now(), { ...claims, exp: Math.floor(Date.now() / 1000) + 86_400 });
}

function rowOf({ token, userId = token, utcOffset = 0, provider = "fcm" }: Device) {
  const at = new Date(Date.now() - 3_600_000);
  const tokenHash = createHash("sha256").update(token).digest();
  const expiresAt = new Date(Date.now() + 86_400_000);
  return { userId, provider, token, tokenHash, utcOffset, expiresAt, registeredAt: at, renewedAt: at };
}
