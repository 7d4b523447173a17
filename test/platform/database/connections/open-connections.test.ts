/** What becomes of open connections where their server is the primary no more, or takes no writes. */
import postgres from "postgres";
import { describe, expect, test } from "vitest";
import { Connector } from "../../../../src/platform/database/connections/connector.ts";
import type { ReplicationState } from "../../../../src/platform/database/connections/replication-state.ts";
import { Primary } from "../../../../src/platform/database/failover/primary.ts";
import { Timelines } from "../../../../src/platform/database/failover/timelines.ts";
import { createTestDatabase } from "../../../support/backends.ts";
import { primary, standby } from "../../../support/cluster-hosts.ts";
import { backends, closedPort } from "../../../support/servers.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { waitFor } from "../../../support/wait-for.ts";

describe.runIf(backends.includes("PostgreSQL"))("connections to PostgreSQL that stay open", () => {
  const cleanup = suiteCleanup();

  /** A server that says at first that it is the primary, and another host that says of itself what it is told to. */
  async function openedHosts() {
    const own = await createTestDatabase();
    cleanup.defer(() => own.drop());
    const { host, port, name: database, user: username, password } = own;
    const address = { host, port };
    const other = { host, port: closedPort };
    /** How often it was asked; the other host is asked from time to time as well. */
    let asked = 0;
    let saysOther: ReplicationState = standby();
    const hosts = new Primary({
      hosts: [address, other],
      timelines: new Timelines(),
      async readState(at) {
        if (at !== address) return saysOther;
        asked += 1;
        return primary(1);
      },
      logger: undefined,
    });
    const connector = new Connector(hosts, () => undefined);
    const connect = () =>
      connector.connect(
        (at) => ({
          ...{ address: at, prepare: true },
          ...{ timeoutMs: 5_000, connectTimeoutMs: 5_000, checkTimeoutMs: 5_000 },
          client: { host, port, database, username, password, ssl: false, fetch_types: false },
          check: async () => primary(1),
          isDoubtful: (error) => hosts.isDoubtful(error),
        }),
        () => undefined,
      );
    const promoteOther = () => {
      saysOther = primary(2);
    };
    return { own, hosts, address, other, connect, promoteOther, asked: () => asked };
  }

  const write = "begin read only; create table refused ()";

  test("a statement that meets a read-only server ends its connection, and it is asked again which host is the primary", async () => {
    const { hosts, address, connect, asked } = await openedHosts();
    const connection = await connect();
    await connection.query("select 1 / 0").catch(() => undefined);
    expect(connection.isClosed).toBe(false);
    expect(await hosts.locate()).toBe(address);
    expect(asked()).toBe(1);
    await expect(connection.query(write, { isScript: true })).rejects.toMatchObject({ code: "25006" });
    expect(connection.isClosed).toBe(true);
    await (await connect()).terminate();
    expect(asked()).toBe(2);
  });

  test("stay open on a primary that is set to read-only transactions, but for one of them", async () => {
    const { connect, asked } = await openedHosts();
    let logins = 0;
    let connection = await connect();
    for (let round = 0; round < 20; round += 1) {
      if (connection.isClosed) {
        connection = await connect();
        logins += 1;
      }
      await expect(connection.query(write, { isScript: true })).rejects.toMatchObject({ code: "25006" });
      if (!connection.isClosed) await connection.query("rollback");
    }
    expect(logins).toBe(1);
    expect(asked()).toBeLessThanOrEqual(2);
  });

  test("end as soon as one of them fails and another host is the primary, though nobody needs a new one", async () => {
    const { hosts, other, connect, promoteOther } = await openedHosts();
    const [reading, writing] = [await connect(), await connect()];
    promoteOther();
    await expect(writing.query(write, { isScript: true })).rejects.toMatchObject({ code: "25006" });
    await waitFor(() => expect(reading.isClosed).toBe(true));
    expect(await hosts.locate()).toBe(other);
  });

  test("end without cancelling what is in flight: a commit that nobody confirms would be seen otherwise", async () => {
    const { own, connect, promoteOther } = await openedHosts();
    const { host, port, name: database, user: username, password } = own;
    const sql = postgres({ host, port, database, username, password, max: 1, onnotice: () => undefined });
    cleanup.defer(() => sql.end({ timeout: 1 }));
    const writing = await connect();
    // Only then is it known what would be cancelled.
    await writing.query("select 1");
    // Longer than the statement may take.
    const script = "select pg_sleep(6); select pg_advisory_lock(735153); select pg_sleep(30)";
    const inFlight = writing.query(script, { isScript: true });
    inFlight.catch(() => undefined);
    promoteOther();
    await expect(inFlight).rejects.toThrow("another server is the primary now");
    const locks = () => sql`select from pg_locks where locktype = 'advisory' and objid = 735153`;
    expect(await locks()).toHaveLength(0);
    await waitFor(async () => expect(await locks()).toHaveLength(1));
  });

  test("end soon after another host was promoted, though nothing fails", async () => {
    const { hosts, other, connect, promoteOther } = await openedHosts();
    const reading = await connect();
    promoteOther();
    await waitFor(() => expect(reading.isClosed).toBe(true));
    await expect(reading.query("select 1")).rejects.toThrow();
    expect(await hosts.locate()).toBe(other);
  });
});
