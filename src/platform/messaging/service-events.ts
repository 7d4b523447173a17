/** The events of a service, from its outbox to the broker and the log of events, if it has them. */
import type { DescMessage } from "@bufbuild/protobuf";
import type { Logger } from "pino";
import type { Loop } from "../base/loop.ts";
import type { OutboxBacklog } from "../base/observers.ts";
import type { Database } from "../database/database.ts";
import type { Broker, EventStream } from "./broker.ts";
import type { BrokerSettings } from "./broker-settings.ts";
import type { CloudEvent } from "./cloud-event.ts";
import { type EventKind, outboxBacklog } from "./outbox.ts";
import { OutboxStart } from "./outbox-start.ts";
import type { OutboxTable } from "./outbox-table.ts";
import { publishEvents } from "./publish-events.ts";
import type { RelayLeaseTable } from "./relay-leases.ts";
import { startRelay } from "./relay-loop.ts";
import type { Subscriber } from "./subscribers.ts";

interface EventTables {
  readonly outbox: OutboxTable;
  readonly leases: RelayLeaseTable;
}

interface Dependencies {
  readonly name: string;
  readonly db: Database;
  readonly tables: EventTables;
  /** `source` of the events: a URI reference that names the service. */
  readonly source: string;
  /** The settings of the broker; undefined: the service has none, and its events stay inside the process. */
  readonly broker: BrokerSettings | undefined;
  readonly stream: EventStream;
  readonly kinds: Iterable<EventKind<DescMessage>>;
  /** Subscribers inside the process, which get each event before the broker and the log; none unless given. */
  readonly subscribers?: readonly Subscriber[];
  /** The log of events; undefined: there is none. */
  readonly log: Subscriber | undefined;
  /** Resolves once these events may be delivered, because every reader sees what they report; at once unless given. */
  readonly mayDeliver?: ((events: readonly CloudEvent[]) => Promise<void>) | undefined;
  /** Registers the outbox with the metrics. @returns what counts the events that were delivered */
  readonly observe: (backlog: () => Promise<OutboxBacklog>) => (delivered: number) => void;
  readonly logger: Logger;
}

interface ServiceEvents {
  /** The broker of the service, which its owner closes; undefined if it has none. */
  readonly broker: Broker | undefined;
  startRelay(): Loop;
}

export async function openServiceEvents(dependencies: Dependencies): Promise<ServiceEvents> {
  const { name, db, tables, stream, kinds, log, mayDeliver, logger } = dependencies;
  const { outbox, leases } = tables;
  const { broker: settings } = dependencies;
  // Its library is loaded only by a process that has a broker.
  const broker = settings && (await import("./broker.ts")).createBroker({ settings, name, logger });
  const publisher = broker && publishEvents(broker, stream, kinds);
  const subscribers: readonly Subscriber[] = [
    ...(dependencies.subscribers ?? []),
    ...(publisher ? [publisher] : []),
    ...(log ? [log] : []),
  ];
  const start = new OutboxStart();
  return {
    broker,
    startRelay: () =>
      startRelay({
        db,
        outbox,
        leases,
        source: dependencies.source,
        subscribers,
        logger,
        start,
        delivered: dependencies.observe(() => outboxBacklog(db, outbox, subscribers, start.position)),
        ...(mayDeliver && { mayDeliver }),
        // A broker keeps the order of each subject's events only; without one the log has all events in order.
        inParts: broker !== undefined,
      }),
  };
}
