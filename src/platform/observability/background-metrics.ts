/** The metrics of what a service does in the background. */
import { Counter, Gauge, type Registry } from "prom-client";
import { withTimeout } from "../base/deadlines.ts";
import type { JanitorObserver, OutboxBacklog, UnreadEvents } from "../base/observers.ts";

/** Milliseconds that a scrape waits for the database or the broker. */
const readingMs = 1_000;

/** The samples of a gauge: labels and value of each. */
type Samples = Iterable<readonly [labels: Readonly<Record<string, string>>, value: number]>;

/** A gauge whose samples are taken from what a scrape has read. */
interface ScrapedGauge<Reading> {
  readonly name: string;
  readonly help: string;
  /** None unless given. */
  readonly labelNames?: readonly string[];
  samples(reading: Reading): Samples;
}

function gaugesOf<Reading>(
  registry: Registry,
  gauges: readonly ScrapedGauge<Reading>[],
  read: () => Promise<Reading | undefined>,
): void {
  for (const { name, help, labelNames = [], samples } of gauges)
    new Gauge({
      name,
      help,
      labelNames,
      registers: [registry],
      async collect() {
        const reading = await read();
        this.reset();
        // Without labels a reset leaves a 0.
        if (reading === undefined) this.remove({});
        else for (const [labels, value] of samples(reading)) this.set(labels, value);
      },
    });
}

/** Gauges that are read together at each scrape, once at a time; absent if that fails or takes longer than a second. */
export function scrapedGauges(registry: Registry) {
  return <Reading>(gauges: readonly ScrapedGauge<Reading>[], read: () => Promise<Reading>): void => {
    const readOnce = shared(read);
    gaugesOf(registry, gauges, () => reading(readOnce()));
  };
}

/** Gauges of the events that wait in each service. A service whose events cannot be read is absent. */
function waitingGauges<Waiting extends Readonly<Record<keyof Waiting, number>>>(
  registry: Registry,
  gauges: readonly { readonly name: string; readonly help: string; readonly value: keyof Waiting }[],
) {
  const services: { service: string; read: () => Promise<Waiting | undefined> }[] = [];
  gaugesOf(
    registry,
    gauges.map(({ name, help, value }) => ({
      ...{ name, help, labelNames: ["service"] },
      samples: (all: readonly { service: string; waiting: Waiting | undefined }[]): Samples =>
        all.flatMap(({ service, waiting }) => (waiting ? [[{ service }, waiting[value]]] : [])),
    })),
    () => Promise.all(services.map(async ({ service, read }) => ({ service, waiting: await read() }))),
  );
  return (service: string, read: () => Promise<Waiting | undefined>): void => {
    services.push({ service, read });
  };
}

/** The events that wait in the outboxes, read at each scrape, unless that takes a second. */
export function outboxMetrics(program: string, registry: Registry) {
  const add = waitingGauges<OutboxBacklog>(registry, [
    {
      name: `${program}_outbox_events`,
      help: "Events that wait to be delivered; absent while the database does not answer.",
      value: "events",
    },
    {
      name: `${program}_outbox_oldest_event_age_seconds`,
      help: "Time since the oldest of them was written; 0 if there is none.",
      value: "oldestSeconds",
    },
    {
      name: `${program}_outbox_unknown_events`,
      help: "Of the oldest 1,000 events that wait, those of a type that this process does not know.",
      value: "unknown",
    },
  ]);
  const delivered = new Counter({
    name: `${program}_outbox_delivered_events_total`,
    help: "Events that this process has delivered.",
    labelNames: ["service"],
    registers: [registry],
  });
  return (service: string, backlog: () => Promise<OutboxBacklog>): ((count: number) => void) => {
    const readOnce = shared(backlog);
    add(service, () => reading(readOnce()));
    delivered.inc({ service }, 0);
    return (count) => delivered.inc({ service }, count);
  };
}

/** The events of a broker that services have not acted on. Scrapes within five seconds share one request to it. */
export function brokerMetrics(program: string, registry: Registry) {
  const add = waitingGauges<UnreadEvents>(registry, [
    {
      name: `${program}_broker_unread_events`,
      help: "Events of others that the service has not acted on yet; absent while the broker does not answer.",
      value: "events",
    },
    {
      name: `${program}_broker_oldest_unread_event_age_seconds`,
      help: "Time since the oldest of them came to the broker; 0 if there is none.",
      value: "oldestSeconds",
    },
  ]);
  return (service: string, unread: () => Promise<UnreadEvents>): void =>
    add(service, remembered(shared(() => reading(unread()))));
}

/** Milliseconds for which a result is repeated. */
const rememberedMs = 5_000;

/** Repeats the last result until it is too old. */
function remembered<T>(work: () => Promise<T>): () => Promise<T> {
  let last: { readonly at: number; readonly result: T } | undefined;
  return async () => {
    if (!last || performance.now() - last.at >= rememberedMs)
      last = { result: await work(), at: performance.now() };
    return last.result;
  };
}

/** The result of the reading; undefined if it fails or takes too long. */
function reading<T>(work: Promise<T>): Promise<T | undefined> {
  const unknown = () => undefined;
  return withTimeout(work, readingMs, unknown).catch(unknown);
}

/** Calls while the work runs share its result. */
function shared<T>(work: () => Promise<T>): () => Promise<T> {
  let running: Promise<T> | undefined;
  return () => {
    running ??= work().finally(() => {
      running = undefined;
    });
    return running;
  };
}

/** The progress of janitors. The gauges have moments, not durations, as a moment stays true while nothing happens. */
export function janitorMetrics(program: string, registry: Registry) {
  const registers = [registry];
  const rows = new Counter({
    name: `${program}_janitor_rows_total`,
    help: "Rows that the janitor of this process has removed; of ended_authorizations, marked as revoked.",
    labelNames: ["service", "kind"],
    registers,
  });
  const caughtUp = new Gauge({
    name: `${program}_janitor_caught_up_timestamp_seconds`,
    help: "When this process last found nothing left to remove, or started. The greatest of all processes holds.",
    labelNames: ["service", "kind"],
    registers,
  });
  const lastRound = new Gauge({
    name: `${program}_janitor_last_round_timestamp_seconds`,
    help: "When the janitor of this process last finished a round without an error, or started.",
    labelNames: ["service"],
    registers,
  });
  return <const Kind extends string>(service: string, kinds: readonly Kind[]): JanitorObserver<Kind> => {
    for (const kind of kinds) {
      rows.inc({ service, kind }, 0);
      caughtUp.setToCurrentTime({ service, kind });
    }
    lastRound.setToCurrentTime({ service });
    return {
      cleaned: (kind, count) => rows.inc({ service, kind }, count),
      caughtUp: (kind) => caughtUp.setToCurrentTime({ service, kind }),
      roundEnded: () => lastRound.setToCurrentTime({ service }),
    };
  };
}
