/** One connection to PostgreSQL: what is said of it once it has ended. */
import { once } from "node:events";
import { connect as connectSocket, createServer, type Socket } from "node:net";
import { beforeAll, describe, expect, test } from "vitest";
import { isDatabaseUnavailable, sqlState } from "../../../../src/platform/base/database-errors.ts";
import { Connection } from "../../../../src/platform/database/connections/connection.ts";
import { listening } from "../../../../src/platform/http/server.ts";
import { type DatabaseWire, openDatabaseWire } from "../../../support/database-wire.ts";
import { requiredPostgresUrl } from "../../../support/postgresql/server.ts";
import { backends } from "../../../support/servers.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";

describe.runIf(backends.includes("PostgreSQL"))("a connection that the server ends: PostgreSQL", () => {
  const cleanup = suiteCleanup();
  let wire: DatabaseWire;
  /** What is sent at one end of it arrives at the other. */
  let bell: readonly [ringer: Socket, rung: Socket];
  beforeAll(async () => {
    const { hostname, port } = requiredPostgresUrl();
    wire = await openDatabaseWire(hostname, Number(port));
    cleanup.defer(() => wire.close());
    const server = createServer();
    cleanup.defer(async () => void server.close());
    const ringer = connectSocket(await listening(server, "127.0.0.1", 0));
    const [rung]: Socket[] = await once(server, "connection");
    cleanup.defer(async () => void ringer.destroy());
    if (rung) bell = [ringer, rung];
  });

  /** A connection as the administrator of the test's cluster. */
  async function connect(): Promise<Connection> {
    const { username, password, pathname } = requiredPostgresUrl();
    const address = { host: "127.0.0.1", port: wire.port };
    const login = { username, ...(password !== "" && { password }), database: pathname.slice(1), ssl: false };
    const connection = new Connection(
      {
        ...{ address, prepare: false },
        ...{ timeoutMs: 5_000, connectTimeoutMs: 5_000, checkTimeoutMs: 5_000 },
        client: { ...address, ...login },
        check: async (query) => void (await query("select 1")),
      },
      () => undefined,
    );
    await connection.open();
    return connection;
  }

  test("fails a statement that is sent when its end has arrived, as where it is unavailable", async () => {
    const connection = await connect();
    const [ringer, rung] = bell;
    // Long enough that the driver writes it at once, and not at the end of the turn.
    const sent = once(rung, "data").then(() => connection.query(`select 1 -- ${"x".repeat(2_000)}`));
    // Both arrive in one turn of the event loop, the end first: Node closes the socket at the end of that turn.
    await wire.end();
    ringer.write("x");
    const failure = await sent.catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(Error);
    expect(isDatabaseUnavailable(failure)).toBe(true);
  });

  test("lets what PostgreSQL says of a statement reach its caller", async () => {
    const connection = await connect();
    cleanup.defer(() => connection.terminate());
    const refused = await connection.query("select 1/0").catch(sqlState);
    expect(refused).toBe("22012");
    await expect(connection.query("select 1")).resolves.toHaveLength(1);
  });
});
