/** Events over NATS JetStream: a real server, that is killed and loses its disk. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import { connect, nanos } from "@nats-io/transport-node";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import type { asyncapiDocument } from "../../../scripts/asyncapi.ts";
import { AuthEvents } from "../../../src/auth/events.ts";
import { type Broker, createBroker } from "../../../src/platform/messaging/broker.ts";
import type { BrokerSettings } from "../../../src/platform/messaging/broker-settings.ts";
import type { CloudEvent } from "../../../src/platform/messaging/cloud-event.ts";
import { publishEvents } from "../../../src/platform/messaging/publish-events.ts";
import { captureLog } from "../../support/captured-log.ts";
import { findNats, type Nats, startNats } from "../../support/nats.ts";
import { root } from "../../support/program.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";
import { commonSettings, consumeFrom, consumer, deletionOf, stream, type } from "./deletions-stream.ts";

/** What consumers are promised. */
const documented: ReturnType<typeof asyncapiDocument> = JSON.parse(
  readFileSync(join(root, "gen/asyncapi/auth.json"), "utf8"),
);
const dayMs = 24 * 60 * 60 * 1000;

describe.skipIf(findNats() === undefined)("events over NATS", () => {
  const log = captureLog();
  const opened: Broker[] = [];
  let nats: Nats;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    nats = await startNats();
    cleanup.defer(() => nats.stop());
  });
  afterEach(async () => {
    await Promise.all(opened.splice(0).map((broker) => broker.close()));
    await nats.restart("lost");
  });

  function open(settings: Partial<BrokerSettings> = {}): Broker {
    const defaults = { ...commonSettings, servers: [nats.url] };
    const broker = createBroker({ settings: { ...defaults, ...settings }, name: "test", logger: log.logger });
    opened.push(broker);
    return broker;
  }

  async function publish(broker: Broker, ...events: CloudEvent[]): Promise<void> {
    const subscriber = publishEvents(broker, stream, Object.values(AuthEvents));
    for (const event of events) await subscriber.deliver(event);
    await subscriber.flush?.();
  }

  /** What the stream has, read with the client library alone. */
  async function kept() {
    const connection = await connect({ servers: nats.url });
    try {
      const { streams } = await jetstreamManager(connection);
      const { state, config } = await streams.info(stream.name);
      const messages = [];
      for (let seq = state.first_seq; state.messages > 0 && seq <= state.last_seq; seq += 1) {
        const found = await streams.getMessage(stream.name, { seq });
        if (found) messages.push(found);
      }
      return { config, messages };
    } finally {
      await connection.close();
    }
  }

  const consume = (broker: Broker, refuse?: Parameters<typeof consumeFrom>[2]) =>
    consumeFrom(broker, log, refuse);

  test("an event is a CloudEvent in binary mode, on the subject of its type", async () => {
    const event = deletionOf('a"b/é%');
    await publish(open(), event);
    const { config, messages } = await kept();
    expect(config.subjects).toEqual(["auth.>"]);
    const [message] = messages;
    expect(message?.subject).toBe("auth.identity.deleted.v1");
    const { header } = message ?? {};
    expect(Object.fromEntries([...(header ?? [])])).toEqual({
      "Nats-Msg-Id": [event.id],
      "Nats-Expected-Stream": ["gatepost-auth"],
      "ce-specversion": ["1.0"],
      "ce-id": [event.id],
      "ce-source": ["https://id.example.com/api/auth"],
      "ce-type": ["auth.identity.deleted.v1"],
      "ce-subject": ["a%22b/%C3%A9%25"],
      "ce-time": ["2026-11-21T09:30:15.123Z"],
      "content-type": ["application/protobuf"],
    });
    const ajv = new Ajv({ strict: false });
    addFormats.default(ajv);
    const headers = Object.fromEntries([...(header ?? [])].map(([name, [value]]) => [name, value]));
    expect(ajv.validate(documented.components.schemas.CloudEventHeaders, headers), ajv.errorsText()).toBe(
      true,
    );
    // Field 1, a string.
    expect(Buffer.from(message?.data ?? []).toString("hex")).toBe(
      `0a07${Buffer.from('a"b/é%').toString("hex")}`,
    );
  });

  test("what is published arrives as it was, in order", async () => {
    const broker = open();
    const events = Array.from({ length: 30 }, (_, n) => deletionOf(n % 3 === 0 ? "carol" : `user "${n}" é`));
    await publish(broker, ...events);
    const { taken, stop } = consume(broker);
    await waitFor(() => expect(taken).toHaveLength(30));
    await stop();
    const ofCarol = ({ subject }: CloudEvent) => subject === "carol";
    expect(taken.filter(ofCarol)).toEqual(events.filter(ofCarol));
    expect(taken.toSorted(byId)).toEqual(events.toSorted(byId));
  });

  test("an event that is published again is kept once", async () => {
    const broker = open();
    const event = deletionOf("carol");
    await publish(broker, event);
    await publish(broker, event);
    await publish(open(), event);
    expect((await kept()).messages).toHaveLength(1);
  });

  test("no event of a subject is published once one of them has failed", async () => {
    const published: string[] = [];
    const broker: Broker = {
      ...open(),
      publish: async (_stream, _subject, id) => {
        if (id === "2") throw new Error("no");
        published.push(id);
      },
    };
    const [first, second, third] = ["1", "2", "3"].map((id) => deletionOf("carol", id)) as [
      CloudEvent,
      CloudEvent,
      CloudEvent,
    ];
    await expect(publish(broker, first, deletionOf("boris", "4"), second, third)).rejects.toThrow("no");
    expect(published.toSorted()).toEqual(["1", "4"]);
  });

  test("a stream gets the retention and what else is set, and keeps what an operator has changed", async () => {
    await open().prepareStream(stream);
    const connection = await connect({ servers: nats.url });
    const { streams } = await jetstreamManager(connection);
    await streams.update(stream.name, { description: "ours", subjects: ["audit.>"] });
    await connection.close();
    await open({ retentionDays: 30 }).prepareStream(stream);
    const { config } = await kept();
    expect(config).toMatchObject({
      description: "ours",
      max_age: nanos(30 * dayMs),
      duplicate_window: nanos(600_000),
      num_replicas: 1,
      storage: "file",
    });
    expect(config.subjects.toSorted()).toEqual(["audit.>", "auth.>"]);
  });

  test("a consumer goes on where it was, in whichever process, while the broker is killed and comes back", async () => {
    const broker = open();
    await publish(broker, deletionOf("1"));
    const first = consume(broker);
    await waitFor(() => expect(first.subjects()).toEqual(["1"]));
    await nats.kill();
    await expect(publish(broker, deletionOf("lost"))).rejects.toThrow();
    await nats.restart("kept");
    await waitFor(() => publish(broker, deletionOf("2")));
    await waitFor(() => expect(first.subjects()).toContain("2"));
    await first.stop();
    await publish(broker, deletionOf("3"));
    const second = consume(open());
    await waitFor(() => expect(second.subjects()).toEqual(["3"]));
    await second.stop();
  });

  test("says how many events a consumer has still to act on, and since when the oldest of them is there", async () => {
    const broker = open();
    const none = { events: 0, oldestSeconds: 0 };
    const refused = new Set<string>();
    /** Publishes it, and says when, later than all before. */
    async function publishedAt(event: CloudEvent): Promise<{ begun: number; ended: number }> {
      const last = Date.now();
      await waitFor(() => expect(Date.now()).toBeGreaterThan(last + 100));
      const begun = Date.now();
      await publish(broker, event);
      return { begun, ended: Date.now() };
    }
    /** There are so many, and the oldest of them was published then. */
    async function expectOldest(count: number, { begun, ended }: { begun: number; ended: number }) {
      const asked = Date.now();
      const { events, oldestSeconds } = await broker.unread(consumer);
      expect(events).toBe(count);
      expect(oldestSeconds * 1000).toBeGreaterThanOrEqual(asked - ended - 1);
      expect(oldestSeconds * 1000).toBeLessThanOrEqual(Date.now() - begun + 1);
    }
    await expect(broker.unread(consumer)).rejects.toThrow(/not found/);
    await broker.ensureConsumer(consumer);
    expect(await broker.unread(consumer)).toEqual(none);

    // Nobody reads.
    const first = await publishedAt(deletionOf("1"));
    await publishedAt(deletionOf("2"));
    await expectOldest(2, first);

    // One fails each time, and others are acted on.
    refused.add("1");
    const { subjects, stop } = consume(broker, ({ subject }) => refused.has(subject));
    await waitFor(() => expect(subjects()).toEqual(["2"]));
    await publishedAt(deletionOf("3"));
    await waitFor(() => expect(subjects()).toEqual(["2", "3"]));
    await waitFor(() => expectOldest(1, first));

    refused.clear();
    await waitFor(async () => expect(await broker.unread(consumer)).toEqual(none));

    // All that came before are acted on; what the consumer does not read is nothing to it.
    await publishedAt({ ...deletionOf("4"), type: AuthEvents.identityUpdated.type });
    refused.add("5").add("6");
    const fifth = await publishedAt(deletionOf("5"));
    await expectOldest(1, fifth);

    // All fail.
    await publishedAt(deletionOf("6"));
    await expectOldest(2, fifth);

    await stop();
    await nats.kill();
    await expect(broker.unread(consumer)).rejects.toThrow();
  });

  test("a broker that has lost its disk gets its stream and consumer again", async () => {
    const broker = open();
    await publish(broker, deletionOf("1"));
    const { subjects, stop } = consume(broker);
    await waitFor(() => expect(subjects()).toEqual(["1"]));
    await nats.restart("lost");
    await waitFor(() => publish(broker, deletionOf("2")));
    await waitFor(() => expect(subjects()).toContain("2"));
    await stop();
  });

  test("while it is away everything fails at once, and a consumer that was waiting goes on as soon as it is back", async () => {
    const broker = open();
    await broker.prepareStream(stream);
    const { subjects, stop } = consume(broker);
    await publish(broker, deletionOf("1"));
    await waitFor(() => expect(subjects()).toEqual(["1"]));
    await nats.kill();
    await waitFor(() => expect(broker.connected()).rejects.toThrow("lost"));
    const since = stopwatch();
    // A call that waits for a response that cannot come takes three seconds.
    for (let left = 20; left > 0; left -= 1) {
      await expect(broker.connected()).rejects.toThrow("lost");
      await expect(publish(broker, deletionOf("lost"))).rejects.toThrow("lost");
    }
    expect(since()).toBeLessThan(2_500);
    await nats.restart("kept");
    await waitFor(() => publish(broker, deletionOf("2")));
    // Delivery is at least once: the acknowledgement of the first may be lost.
    await waitFor(() => expect([...new Set(subjects())]).toEqual(["1", "2"]));
    await stop();
  });

  test("a consumer and a stream that an operator has changed serve on, whatever another version would make", async () => {
    const broker = open({ retentionDays: 30 });
    await broker.prepareStream(stream);
    await broker.ensureConsumer(consumer);
    const connection = await connect({ servers: nats.url });
    const { consumers } = await jetstreamManager(connection);
    await consumers.update(stream.name, consumer.name, { max_ack_pending: 7 });
    const older = open({ retentionDays: 7 });
    await older.ensureConsumer(consumer);
    await publish(older, deletionOf("1"));
    expect((await kept()).config.max_age).toBe(nanos(30 * dayMs));
    expect((await consumers.info(stream.name, consumer.name)).config.max_ack_pending).toBe(7);
    await connection.close();
  });

  test("a message whose time or subject is none is no event", async () => {
    const broker = open();
    await broker.prepareStream(stream);
    await publish(broker, { ...deletionOf("1"), time: "soon" }, deletionOf("a\u0000b"), deletionOf("2"));
    const { subjects, stop } = consume(broker);
    await waitFor(() => expect(subjects()).toEqual(["2"]));
    await stop();
  });

  test("an event that fails comes again; what is no event is reported and holds nobody up", async () => {
    const broker = open();
    await broker.prepareStream(stream);
    const connection = await connect({ servers: nats.url });
    await jetstream(connection).publish(type, new Uint8Array([255, 255]));
    await connection.close();
    await publish(broker, deletionOf("1"));
    let refusals = 0;
    const { subjects, stop } = consume(broker, () => {
      refusals += 1;
      return refusals === 1;
    });
    await waitFor(() => expect(subjects()).toEqual(["1"]));
    await stop();
    expect(log.text()).toContain("A message of the broker is no event and was left out");
    expect(log.text()).toContain("An event could not be handled and will come again");
  });

  test("events that failed because the database was away are handled soon after it is back, however often they failed", async () => {
    const broker = open();
    await broker.prepareStream(stream);
    await publish(broker, deletionOf("1"), deletionOf("2"));
    let refusals = 0;
    let since = stopwatch();
    const { subjects, stop } = consume(broker, () => {
      if (refusals === 5) return false;
      refusals += 1;
      since = stopwatch();
      return Object.assign(new Error("the connection was lost"), { code: "CONNECTION_CLOSED" });
    });
    await waitFor(() => expect(subjects().toSorted()).toEqual(["1", "2"]), 60);
    expect(since()).toBeLessThan(2_500);
    await stop();
  });
});

function byId(a: CloudEvent, b: CloudEvent): number {
  return a.id < b.id ? -1 : 1;
}
