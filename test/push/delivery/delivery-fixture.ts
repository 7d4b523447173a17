/** What the tests of delivery share: a database with devices and planned chunks, and workers on it. */
import { createHash } from "node:crypto";
import { sql } from "drizzle-orm";
import { WakeUps } from "../../../src/platform/base/loop.ts";
import { uuidv7 } from "../../../src/platform/crypto/random.ts";
import { arrayLiteral, type Database, type Reads } from "../../../src/platform/database/database.ts";
import { createMetrics, type Metrics } from "../../../src/platform/observability/metrics.ts";
import { pushMigrations } from "../../../src/push/database.ts";
import { type DeliverySettings, startDelivery } from "../../../src/push/delivery/delivery.ts";
import { type DeliveryRules, deliveryRules } from "../../../src/push/delivery/delivery-rules.ts";
import type { ProviderName } from "../../../src/push/provider-settings.ts";
import type { Outcome, PushProvider, Recipient } from "../../../src/push/providers/provider.ts";
import type { Work } from "../../../src/push/queue/work.ts";
import { type CapturedLog, captureLog } from "../../support/captured-log.ts";
import { rows } from "../../support/rows.ts";
import type { Backend } from "../../support/servers.ts";
import { createMigratedServiceDatabase, type ServiceDatabase } from "../../support/service-database.ts";

/** As in a deployment, but quicker. */
export const quickRules: Partial<DeliveryRules> = {
  ...deliveryRules,
  firstRetryMs: 100,
  longestRetryMs: 1_000,
  firstPauseMs: 400,
  longestPauseMs: 1_000,
  refusedPauseMs: 1_000,
};

export interface Sent extends Recipient {
  readonly at: number;
}

export interface RecordingProvider extends PushProvider {
  /** Every message that was handed over, in order. */
  readonly sent: Sent[];
  /** Its answers from now on; "sent" unless set. */
  answer: (recipient: Recipient, nth: number) => Outcome | Promise<Outcome>;
}

/** A provider that answers what the test says, where no wire is needed. */
export function recordingProvider(maxInFlight = 100): RecordingProvider {
  const sent: Sent[] = [];
  return {
    name: "fcm",
    maxInFlight,
    sent,
    answer: () => ({ kind: "sent" }),
    tokenProblem: () => undefined,
    prepare() {
      return async (recipient) => {
        sent.push({ ...recipient, at: performance.now() });
        return this.answer(recipient, sent.length);
      };
    },
    close: async () => undefined,
  };
}

interface Plan {
  readonly devices: number;
  readonly chunkSize?: number;
  readonly provider?: ProviderName;
  /** Seconds. */
  readonly ttl?: number;
  /** Begins the devices' tokens. */
  readonly name?: string;
  readonly token?: (index: number) => string;
  /** Users that the devices belong to, in turn; a user for each device unless given. */
  readonly users?: number;
}

export interface Planned {
  readonly notificationId: string;
  readonly chunkIds: readonly number[];
  readonly deviceIds: readonly number[];
  readonly tokens: readonly string[];
}

export interface ChunkRow extends Record<string, unknown> {
  readonly state: string;
  readonly planned: number;
  readonly sent: number;
  readonly failed: number;
  readonly dropped: number;
  readonly rest: number;
  readonly retries: number;
  readonly reason: string | null;
}

interface WorkerOptions {
  readonly providers: readonly PushProvider[];
  readonly settings?: Partial<DeliverySettings>;
  readonly rules?: Partial<DeliveryRules>;
}

export interface DeliveryTest {
  readonly database: ServiceDatabase;
  readonly db: Database;
  readonly reads: Reads;
  readonly wakeUps: WakeUps<Work>;
  readonly log: CapturedLog;
  readonly metrics: Metrics;
  /** Ids of notifications that delivery asked to complete. */
  readonly completed: string[];
  /** Devices, a notification to them, and its chunks. */
  plan(plan: Plan): Promise<Planned>;
  startWorker(options: WorkerOptions): ReturnType<typeof startDelivery>;
  /** A notification's chunks, in their order. */
  chunks(planned: Planned): Promise<ChunkRow[]>;
  /** Waits until all chunks are in one of the states. */
  until(planned: Planned, states: readonly string[]): Promise<ChunkRow[]>;
  setState(planned: Planned, state: string): Promise<void>;
  /** As an operator's pause and resume have it. */
  pause(planned: Planned): Promise<void>;
  resume(planned: Planned): Promise<void>;
  /** Forgets the states of providers, responses and the chunks that are left, so that no test works for another or slows it down. */
  clearState(): Promise<void>;
  /** As if the provider had failed; null: its pause is over, and it is to be probed. */
  pauseProvider(pause: { cause: string; seconds: number | null; service?: string }): Promise<void>;
  /** How many chunks are to be sent, without those that are parked. */
  openChunks(provider?: ProviderName): Promise<number>;
  stopWorkers(): Promise<void>;
  close(): Promise<void>;
}

/** Waits for something to become true; the limit of a minute is there for what never does. */
export async function eventually(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  const until = performance.now() + 60_000;
  while (!(await isTrue())) {
    if (performance.now() > until) throw new Error(`not within a minute: ${isTrue}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Inserts devices, a notification to them, and its chunks. */
async function planOn(db: Database, plan: Plan): Promise<Planned> {
  const { devices, chunkSize = 1000, provider = "fcm", ttl = 3600, name = uuidv7(Date.now()) } = plan;
  const { users = devices } = plan;
  const now = Date.now();
  const notificationId = uuidv7(now);
  const tokens = Array.from(
    { length: devices },
    (_, index) => plan.token?.(index) ?? `${name}-${String(index).padStart(32, "0")}`,
  );
  const hashes = tokens.map((token) => createHash("sha256").update(token).digest("hex"));
  const inserted = await rows<{ id: string }>(
    db,
    sql`
      insert into push.devices
        (user_id, provider, token, token_hash, utc_offset, expires_at, registered_at, renewed_at)
      select 'user-' || n % ${users}::int, ${provider}, token, decode(hash, 'hex'), 0, now() + interval '1 day', now(),
        now() - interval '1 hour'
      from unnest(${arrayLiteral(tokens)}::text[], ${`{${hashes.join(",")}}`}::text[])
        with ordinality as d (token, hash, n)
      order by n returning id::text`,
  );
  const deviceIds = inserted.map(({ id }) => Number(id));
  await db.execute(sql`
    insert into push.notifications
      (id, title, message, image, utc_offsets, client_id, state, accepted_at, expires_at, planned_at, recipients, chunks)
    values (${notificationId}::uuid, 'Title', 'Message', 'summer.png', '{0}', 'backoffice', 'SENDING', now(),
      now() + make_interval(secs => ${ttl}::float8), now(), ${devices}::int, ${Math.ceil(devices / chunkSize)}::int)`);
  const chunkIds: number[] = [];
  for (let first = 0; first < devices; first += chunkSize) {
    const ids = deviceIds.slice(first, first + chunkSize);
    const [chunk] = await rows<{ id: string }>(
      db,
      sql`
        insert into push.delivery_chunks (notification_id, provider, utc_offset, turn, device_ids, planned)
        values (${notificationId}::uuid, ${provider}, 0, ${first === 0 ? 0 : 1_000 + chunkIds.length}::int,
          ${`{${ids.join(",")}}`}::bigint[], ${ids.length}::int)
        returning id::text`,
    );
    chunkIds.push(Number(chunk?.id));
  }
  return { notificationId, chunkIds, deviceIds, tokens };
}

export async function createDeliveryTest(backend: Backend): Promise<DeliveryTest> {
  await using cleanup = new AsyncDisposableStack();
  const database = await createMigratedServiceDatabase(backend, pushMigrations);
  cleanup.defer(() => database.drop());
  const opened = await database.open();
  const { db, reads } = opened;
  const log = captureLog();
  const metrics = createMetrics("gatepost", "1.2.3");
  const wakeUps = new WakeUps<Work>();
  const completed: string[] = [];
  const workers = new Set<{ stop(): Promise<void> }>();
  cleanup.defer(stopWorkers);

  async function chunks({ notificationId }: Planned): Promise<ChunkRow[]> {
    return rows<ChunkRow>(
      db,
      sql`
        select state, planned, sent, failed, dropped, cardinality(device_ids) as rest, retries, reason
        from push.delivery_chunks where notification_id = ${notificationId}::uuid order by id`,
    );
  }

  async function setState({ notificationId }: Planned, state: string): Promise<void> {
    await db.execute(sql`update push.notifications set state = ${state} where id = ${notificationId}::uuid`);
  }

  async function stopWorkers(): Promise<void> {
    await Promise.all([...workers].map((worker) => worker.stop()));
    workers.clear();
  }

  const all = cleanup.move();
  return {
    database,
    db,
    reads,
    wakeUps,
    log,
    metrics,
    completed,
    plan: (plan) => planOn(db, plan),
    startWorker({ providers, settings, rules }) {
      const isFirst = metrics.registry.getSingleMetric("gatepost_push_provider_paused") === undefined;
      const worker = startDelivery({
        database: opened,
        wakeUps,
        providers: new Map(providers.map((provider) => [provider.name, provider])),
        settings: {
          maxPerSecond: 0,
          rampSeconds: 0,
          maxDeadPercent: 10,
          removalDelaySeconds: 0,
          ...settings,
        },
        rules: { ...quickRules, ...rules },
        logger: log.logger,
        // The first one's are looked at.
        metrics: isFirst ? metrics : createMetrics("gatepost", "1.2.3"),
        completion: {
          ifDone: async (notificationId) => completed.push(notificationId),
          lock: async () => undefined,
          inTransaction: async (_tx, notificationId) => completed.push(notificationId),
        },
        idleMs: 50,
      });
      workers.add(worker);
      return worker;
    },
    chunks,
    async until(planned, states) {
      let found: ChunkRow[] = [];
      await eventually(async () => {
        found = await chunks(planned);
        return found.every(({ state }) => states.includes(state));
      });
      return found;
    },
    setState,
    pause: (planned) => setState(planned, "PAUSED"),
    async resume(planned) {
      await setState(planned, "SENDING");
      await db.execute(sql`
        update push.delivery_chunks set state = 'READY'
        where notification_id = ${planned.notificationId}::uuid and state = 'PARKED'`);
      wakeUps.wake("chunks");
    },
    async clearState() {
      await db.execute(sql`delete from push.delivery_chunks where state in ('READY', 'WAITING', 'PARKED')`);
      await db.execute(sql`delete from push.provider_states`);
      await db.execute(sql`delete from push.dead_reports`);
      await db.execute(sql`delete from push.provider_responses`);
    },
    async pauseProvider({ cause, seconds, service = "" }) {
      await db.execute(sql`
        insert into push.provider_states (provider, service, next_at, share, failures, cause, reason, paused_until)
        values ('fcm', ${service}, now(), 0.5, 1, ${cause}, 'a test', now() + make_interval(secs => ${seconds}::float8))`);
    },
    async openChunks(provider = "fcm") {
      const [row] = await rows<{ count: number }>(
        db,
        sql`select count(*)::int as count from push.delivery_chunks
            where provider = ${provider} and state in ('READY', 'WAITING', 'TAKEN')`,
      );
      return row?.count ?? 0;
    },
    stopWorkers,
    close: () => all.disposeAsync(),
  };
}

/** The state of the provider's rate and pauses, if it has any. */
export async function rateRow(test: Pick<DeliveryTest, "db">) {
  const [row] = await rows<{ failures: number; share: number; paused: boolean; reason: string | null }>(
    test.db,
    sql`select failures, share, coalesce(paused_until > now(), false) as paused, reason from push.provider_states`,
  );
  return row;
}
