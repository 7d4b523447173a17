/** How soon a process leaves a primary that was replaced though nothing fails there, by what it hears of whom. */
import { once } from "node:events";
import { createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { Connection, checkTimeoutMs } from "../../../../src/platform/database/connections/connection.ts";
import { Connector } from "../../../../src/platform/database/connections/connector.ts";
import type { ReplicationState } from "../../../../src/platform/database/connections/replication-state.ts";
import { Primary } from "../../../../src/platform/database/failover/primary.ts";
import { Timelines } from "../../../../src/platform/database/failover/timelines.ts";
import type { Address } from "../../../../src/platform/database/settings.ts";
import { createTestDatabase } from "../../../support/backends.ts";
import { b, c, follower, primary, standby } from "../../../support/cluster-hosts.ts";
import { backends } from "../../../support/servers.ts";
import { stopwatch } from "../../../support/stopwatch.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { waitFor } from "../../../support/wait-for.ts";

describe.runIf(backends.includes("PostgreSQL"))("a primary that was replaced is left: PostgreSQL", () => {
  const cleanup = suiteCleanup();
  type Says = () => ReplicationState | Promise<ReplicationState>;

  /** A connection to a server that says that it is the primary, beside hosts that say something, or hang. */
  async function connected(others: readonly (readonly [Address, Says])[], timelines = new Timelines()) {
    const own = await createTestDatabase();
    cleanup.defer(() => own.drop());
    const { host, port, name: database, user: username, password } = own;
    const asked: Address[] = [];
    const sayings = new Map<Address, Says>([[{ host, port }, () => primary(1)], ...others]);
    const hosts = new Primary({
      hosts: [...sayings.keys()],
      timelines,
      async readState(address) {
        asked.push(address);
        const says = sayings.get(address);
        if (!says) throw new Error("nobody knows this host");
        return says();
      },
      logger: undefined,
    });
    const limits = { timeoutMs: 5_000, connectTimeoutMs: 5_000, checkTimeoutMs: 5_000 };
    const client = { host, port, database, username, password, ssl: false, fetch_types: false } as const;
    const connection = await new Connector(hosts, () => undefined).connect(
      (address) => ({ ...limits, address, client, prepare: true, check: async () => primary(1) }),
      () => undefined,
    );
    cleanup.defer(async () => connection.destroy(new Error("the test is over")));
    return { connection, asked };
  }

  /** A host that takes connections and never says anything. */
  async function hangingHost(): Promise<readonly [Address, Says]> {
    const server = createServer(() => undefined).listen(0, "127.0.0.1");
    await once(server, "listening");
    cleanup.defer(async () => void server.close());
    const at = server.address();
    if (typeof at !== "object" || at === null) throw new Error("not listening");
    const address = { host: "127.0.0.1", port: at.port };
    const limits = {
      timeoutMs: checkTimeoutMs,
      connectTimeoutMs: checkTimeoutMs,
      checkTimeoutMs,
    };
    return [
      address,
      async () => {
        const check = async (query: (text: string) => Promise<unknown>) => {
          await query("select 1");
          return standby();
        };
        const options = { ...limits, address, client: { ...address, ssl: false }, prepare: false, check };
        const connection = new Connection(options, () => undefined);
        await connection.open();
        return standby();
      },
    ];
  }

  /** A host that says this after so long; by what it was when it was asked. */
  const slowly =
    (ms: number, says: () => ReplicationState): Says =>
    () =>
      delay(ms, says());

  test("within 2.3 seconds, though another host hangs", async () => {
    let says = follower(1, true);
    let looks = 0;
    const successor: Says = () => {
      looks += 1;
      return says;
    };
    const { connection } = await connected([await hangingHost(), [b, successor]]);
    const first = looks;
    await waitFor(() => expect(looks).toBeGreaterThan(first), 5);
    // What was asked just before the promotion has not told of it.
    says = primary(2);
    const took = stopwatch();
    await waitFor(() => expect(connection.isClosed).toBe(true), 5);
    expect(took()).toBeLessThan(2_300);
  });

  test("by two looks at a time at a host that hangs, and no more", async () => {
    const [address, hangs] = await hangingHost();
    let [begun, inFlight, most] = [0, 0, 0];
    const looked: Says = async () => {
      begun += 1;
      // The first question is that of the search.
      const isLook = begun > 1;
      if (isLook) inFlight += 1;
      most = Math.max(most, inFlight);
      try {
        return await hangs();
      } finally {
        if (isLook) inFlight -= 1;
      }
    };
    // The other standby speaks for the primary, so that the search does not wait.
    await connected([
      [address, looked],
      [b, () => follower(1, true)],
    ]);
    await waitFor(() => expect(begun).toBeGreaterThan(8), 5);
    expect(most).toBe(2);
  });

  test("within 3.25 seconds, though its successor takes nearly two to say so", async () => {
    let says = follower(1);
    const { connection, asked } = await connected([
      [b, slowly(1_800, () => says)],
      [c, () => follower(1, true)],
    ]);
    const first = asked.length;
    await waitFor(() => expect(asked.slice(first)).toContain(b), 5);
    says = primary(2);
    const took = stopwatch();
    await waitFor(() => expect(connection.isClosed).toBe(true), 5);
    expect(took()).toBeLessThan(3_250);
  });

  test("by what came too late for the search that found it", async () => {
    const late = Promise.withResolvers<ReplicationState>();
    const never = Promise.withResolvers<ReplicationState>();
    const replies = [late.promise];
    // The other standby speaks for the old primary, so that nobody waits for the slow one.
    const { connection } = await connected([
      [b, () => replies.shift() ?? never.promise],
      [c, () => follower(1, true)],
    ]);
    expect(connection.isClosed).toBe(false);
    late.resolve(primary(2));
    await waitFor(() => expect(connection.isClosed).toBe(true), 5);
  });

  test("at once where another pool of the process was told", async () => {
    const timelines = new Timelines();
    let says = standby();
    const told = await connected([[b, () => says]], timelines);
    const untold = await connected([[c, () => standby()]], timelines);
    says = primary(2);
    await waitFor(() => expect(told.connection.isClosed).toBe(true), 5);
    expect(untold.connection.isClosed).toBe(true);
  });
});
