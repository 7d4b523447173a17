/** Which of several hosts is used: by what they say, and where some say nothing. */
import { describe, expect, test } from "vitest";
import { isDatabaseUnavailable } from "../../../src/platform/base/database-errors.ts";
import { choosePrimary, type Known, type Standing } from "../../../src/platform/database/choose-primary.ts";
import { Connection } from "../../../src/platform/database/connection.ts";
import { Connector } from "../../../src/platform/database/connector.ts";
import { Primary } from "../../../src/platform/database/primary.ts";
import type { Address } from "../../../src/platform/database/settings.ts";
import { createTestDatabase } from "../../support/backends.ts";
import { backends, closedPort } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const a: Address = { host: "a", port: 1 };
const b: Address = { host: "b", port: 2 };
const c: Address = { host: "c", port: 3 };
const standby = (cluster = "x"): Standing => ({ cluster, timeline: undefined });
const primary = (timeline: number, cluster = "x"): Standing => ({ cluster, timeline });

describe("of what the hosts say", () => {
  const nothing: Known = { cluster: undefined, timelines: new Map() };
  const second: Known = { cluster: "x", timelines: new Map([["x", 2]]) };
  /** Another service of the process has used the cluster. */
  const others: Known = { ...second, cluster: undefined };
  type Hosts = readonly (readonly [Address, Standing])[];
  type Row = readonly [
    what: string,
    hosts: Hosts,
    known: Known,
    last: Address | undefined,
    used: Address | undefined,
    roles: string,
  ];

  test.each<Row>([
    [
      "the only primary",
      [
        [a, standby()],
        [b, primary(1)],
      ],
      nothing,
      undefined,
      b,
      "standby primary",
    ],
    [
      "the one that was promoted",
      [
        [a, primary(1)],
        [b, primary(2)],
      ],
      nothing,
      a,
      b,
      "outdated primary",
    ],
    [
      "of two promotions the later",
      [
        [a, primary(3)],
        [b, primary(2)],
      ],
      second,
      b,
      a,
      "primary outdated",
    ],
    [
      "never an older one than was used",
      [
        [a, primary(1)],
        [b, standby()],
      ],
      second,
      b,
      undefined,
      "outdated standby",
    ],
    ["nor if it is alone", [[a, primary(1)]], second, a, undefined, "outdated"],
    [
      "the same again after its restart",
      [
        [a, primary(2)],
        [b, standby()],
      ],
      second,
      a,
      a,
      "primary standby",
    ],
    [
      "of several alike the first",
      [
        [a, primary(2)],
        [b, primary(2)],
      ],
      nothing,
      undefined,
      a,
      "primary primary",
    ],
    [
      "of several alike the last used",
      [
        [a, primary(2)],
        [b, primary(2)],
      ],
      second,
      b,
      b,
      "primary primary",
    ],
    [
      "none of another cluster",
      [
        [a, primary(7, "y")],
        [b, primary(2)],
      ],
      second,
      undefined,
      b,
      "foreign primary",
    ],
    ["nor if it is alone", [[a, primary(7, "y")]], second, undefined, undefined, "foreign"],
    [
      "none where it is not known which cluster is meant",
      [
        [a, primary(7, "y")],
        [b, primary(2)],
      ],
      nothing,
      undefined,
      undefined,
      "foreign foreign",
    ],
    [
      "nor by a standby",
      [
        [a, primary(7)],
        [b, standby("y")],
      ],
      nothing,
      undefined,
      undefined,
      "foreign foreign",
    ],
    [
      "none among standbys",
      [
        [a, standby()],
        [b, standby()],
      ],
      second,
      a,
      undefined,
      "standby standby",
    ],
    ["none older than another service used", [[a, primary(1)]], others, undefined, undefined, "outdated"],
    ["none where nobody responds", [], nothing, undefined, undefined, ""],
  ])("%s is used", (_, hosts, known, last, used, roles) => {
    const found = hosts.map(([address, standing]) => ({ address, standing }));
    const choice = choosePrimary(found, known, last);
    expect(choice.primary?.address).toBe(used);
    expect(choice.roles.map(({ role }) => role).join(" ")).toBe(roles);
  });
});

describe("a search", () => {
  /** Hosts that say this, one question after the other; the last is repeated, and undefined is said never. */
  function hostsThatSay(says: readonly (readonly [Address, (Standing | Error | undefined)[]])[]) {
    const asked: Address[] = [];
    const lines: string[] = [];
    const log = (_: object, message: string) => void lines.push(message);
    const sayings = new Map(says);
    async function ask(address: Address): Promise<Standing> {
      asked.push(address);
      const own = sayings.get(address) ?? [];
      const said = own.length > 1 ? own.shift() : own[0];
      if (said instanceof Error) throw said;
      return said ?? (await new Promise<never>(() => undefined));
    }
    const hosts = new Primary({
      hosts: says.map(([address]) => address),
      timelines: new Map(),
      ask,
      logger: { info: log, warn: log },
    });
    return { hosts, asked, lines };
  }

  /** A connection to the address fails. */
  function lose(hosts: Primary, address: Address): void {
    const options = {
      ...{ address, client: {}, prepare: false, timeoutMs: 1, connectTimeoutMs: 1, checkTimeoutMs: 1 },
      check: async () => undefined,
    };
    hosts.closed(new Connection(options, () => undefined), refused);
  }

  const refused = Object.assign(new Error("connect ECONNREFUSED"), { code: "ECONNREFUSED" });
  const full = Object.assign(new Error("sorry, too many clients already"), { code: "53300" });

  test("is shared by those who need it at the same time, and what it found is kept", async () => {
    const { hosts, asked } = hostsThatSay([
      [a, [standby()]],
      [b, [primary(1)]],
    ]);
    expect(await Promise.all([hosts.locate(), hosts.locate()])).toEqual([b, b]);
    expect(await hosts.locate()).toBe(b);
    expect(asked).toEqual([a, b]);
  });

  test("does not wait for a host that says nothing, and asks it no second time meanwhile", async () => {
    const { hosts, asked } = hostsThatSay([
      [a, [undefined]],
      [b, [standby(), primary(2)]],
    ]);
    await expect(hosts.locate()).rejects.toThrow(
      "no host is the primary: a:1 has not responded, b:2 is a standby",
    );
    expect(await hosts.locate()).toBe(b);
    expect(asked).toEqual([a, b, b]);
  });

  test("that finds none means that the database is unavailable, and says what each host is", async () => {
    const { hosts } = hostsThatSay([
      [a, [refused]],
      [b, [standby()]],
      [c, [full]],
    ]);
    const error = await hosts.locate().catch((reason: unknown) => reason);
    expect(isDatabaseUnavailable(error)).toBe(true);
    expect(error).toMatchObject({
      message:
        "no host is the primary: a:1 (connect ECONNREFUSED), b:2 is a standby, c:3 (sorry, too many clients already)",
      cause: full,
    });
  });

  test("says what should not be, once for as long as it lasts", async () => {
    const { hosts, lines } = hostsThatSay([
      [a, [primary(1), primary(1), primary(1), standby()]],
      [b, [primary(2), refused, refused, primary(2)]],
    ]);
    expect(await hosts.locate()).toBe(b);
    const old = "A host takes writes on an old timeline, and is not used";
    const found = "The primary of the database was found";
    expect(lines).toEqual([old, found]);
    for (let round = 0; round < 2; round += 1) {
      lose(hosts, b);
      await expect(hosts.locate()).rejects.toThrow("a:1 writes an old timeline, b:2 (connect ECONNREFUSED)");
    }
    lose(hosts, b);
    expect(await hosts.locate()).toBe(b);
    expect(lines).toEqual([old, found]);
  });
});

describe.runIf(backends.includes("PostgreSQL"))("connections to PostgreSQL that stay open", () => {
  const cleanup = suiteCleanup();

  /** A server that says at first that it is the primary, and another host that says of itself what it is told to. */
  async function openedHosts() {
    const own = await createTestDatabase();
    cleanup.defer(() => own.drop());
    const { host, port, name: database, user: username, password } = own;
    const address = { host, port };
    const other = { host, port: closedPort };
    let asked = 0;
    let saysOther: Standing = standby();
    const hosts = new Primary({
      hosts: [address, other],
      timelines: new Map(),
      async ask(at) {
        asked += 1;
        return at === address ? primary(1) : saysOther;
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
    return { hosts, address, other, connect, promoteOther, asked: () => asked };
  }

  const write = "begin read only; create table refused ()";

  test("a statement that meets a read-only server ends its connection, and all hosts are asked again", async () => {
    const { hosts, address, connect, asked } = await openedHosts();
    const connection = await connect();
    await connection.query("select 1 / 0").catch(() => undefined);
    expect(connection.isClosed).toBe(false);
    expect(await hosts.locate()).toBe(address);
    expect(asked()).toBe(2);
    await expect(connection.query(write, { isScript: true })).rejects.toMatchObject({ code: "25006" });
    expect(connection.isClosed).toBe(true);
    await (await connect()).end();
    expect(asked()).toBe(4);
  });

  test("end as soon as one of them fails and another host is the primary, though nobody needs a new one", async () => {
    const { hosts, other, connect, promoteOther } = await openedHosts();
    const [reading, writing] = [await connect(), await connect()];
    promoteOther();
    await expect(writing.query(write, { isScript: true })).rejects.toMatchObject({ code: "25006" });
    await waitFor(() => expect(reading.isClosed).toBe(true));
    expect(await hosts.locate()).toBe(other);
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
