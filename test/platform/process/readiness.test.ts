/** Readiness follows the database, and each obstacle is logged once. */
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { describe, expect, it, vi } from "vitest";
import { Reminders } from "../../../src/platform/base/reminders.ts";
import { openDatabase } from "../../../src/platform/database/open.ts";
import { resolveDatabaseSettings } from "../../../src/platform/database/settings.ts";
import { createLifecycle } from "../../../src/platform/process/lifecycle.ts";
import { becomeReady, followDatabase, prepareBroker } from "../../../src/platform/process/readiness.ts";
import { valueOrThrow } from "../../../src/platform/settings/settings.ts";
import { captureLog } from "../../support/captured-log.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { waitFor } from "../../support/wait-for.ts";

class Unreachable extends Error {}

function parts() {
  const log = captureLog();
  const lifecycle = createLifecycle({ logger: log.logger, graceSeconds: 1 });
  const stopping = new AbortController();
  const common = {
    service: "orders",
    logger: log.logger,
    reminders: new Reminders(),
    stopping: stopping.signal,
    database: "a database",
    explain: (error: unknown) => (error instanceof Unreachable ? "It is away." : undefined),
  };
  return { log, lifecycle, stopping, common, readiness: lifecycle.readiness.register("database") };
}

it("is given up for a while to a broker that cannot be used, and then not", async () => {
  const { log, lifecycle, common, readiness } = parts();
  let isAway = true;
  const prepare = vi.fn(async () => {
    if (isAway) throw new Error("refused");
  });
  const preparing = prepareBroker({ ...common, readiness, prepare, graceMs: 1_500 });
  await waitFor(() => expect(lifecycle.unready()).toEqual([{ name: "database", reason: "cannot be used" }]));
  await waitFor(() => expect(lifecycle.isReady()).toBe(true));
  expect(prepare.mock.calls.length).toBeGreaterThan(1);
  isAway = false;
  await preparing;
  const said = log.lines().filter(({ level, msg }) => level === "warn" && `${msg}`.startsWith("The broker"));
  expect(said).toHaveLength(1);
});

describe("becoming ready", () => {
  it("goes through what is in the way, logs each once, and prepares at the end", async () => {
    const { log, lifecycle, common, readiness } = parts();
    const prepared = vi.fn(async () => {});
    const isMigrated = vi
      .fn<() => Promise<boolean>>()
      .mockRejectedValueOnce(new Unreachable())
      .mockRejectedValueOnce(new Unreachable())
      .mockRejectedValueOnce(new Error("a defect"))
      .mockResolvedValueOnce(false)
      .mockResolvedValue(true);
    await becomeReady({
      ...{ readiness, ...common },
      ...{ migrate: undefined, isMigrated, prepare: prepared },
    });
    expect(lifecycle.isReady()).toBe(true);
    expect(prepared).toHaveBeenCalledOnce();
    const logged = log.lines().filter(({ level }) => level === "warn" || level === "error");
    expect(logged.map(({ msg, database, err }) => [msg, database, err !== undefined])).toEqual([
      ["It is away. Trying again every second.", "a database", false],
      ["The database is not ready. Trying again every second.", "a database", true],
      [
        "Migrations are pending: run npm run migrate as the migration user. Trying again every second.",
        "a database",
        false,
      ],
    ]);
  });

  it("gives up at once when it is time to stop", async () => {
    const { lifecycle, stopping, common, readiness } = parts();
    const ready = becomeReady({
      ...{ readiness, ...common },
      ...{ migrate: () => Promise.reject(new Error("away")), isMigrated: async () => true },
      prepare: async () => {},
    });
    await waitFor(() => expect(lifecycle.unready()).toMatchObject([{ reason: "does not answer" }]));
    stopping.abort();
    await ready;
    expect(lifecycle.isReady()).toBe(false);
  });
});

describe("keeping it true", () => {
  it("follows a database that goes away and comes back, and reports each check", async () => {
    const { lifecycle, stopping, readiness } = parts();
    const seen: [boolean, boolean][] = [];
    const answers = vi.fn<() => Promise<boolean>>().mockResolvedValueOnce(false).mockResolvedValue(true);
    await followDatabase({
      ...{ readiness, stopping: stopping.signal, isReachable: answers },
      checked: (answered) => {
        seen.push([answered, lifecycle.isReady()]);
        if (answered) stopping.abort();
      },
    });
    expect(seen).toEqual([
      [false, false],
      [true, true],
    ]);
  });
});

describe("two services on one database", () => {
  async function obstacles(errors: Readonly<Record<string, () => Error>>) {
    const { log, lifecycle, stopping, common } = parts();
    const trying = Object.entries(errors).map(([service, error]) =>
      becomeReady({
        ...{ ...common, service, readiness: lifecycle.readiness.register(service) },
        ...{ migrate: () => Promise.reject(error()), isMigrated: async () => true, prepare: async () => {} },
      }),
    );
    await waitFor(() =>
      expect(log.lines().filter(({ msg }) => String(msg).includes("Trying again")).length).toBeGreaterThan(0),
    );
    stopping.abort();
    await Promise.all(trying);
    return log.lines().filter(({ level }) => level === "warn");
  }

  it("log once why neither can use it", async () => {
    const lines = await obstacles({ orders: () => new Unreachable(), stock: () => new Unreachable() });
    expect(lines).toHaveLength(1);
  });

  it("log a defect each, with the service that has it", async () => {
    const lines = await obstacles({ orders: () => new Error("one"), stock: () => new Error("another") });
    expect(lines.map(({ service }) => service)).toEqual(["orders", "stock"]);
  });
});

it("treats a database that accepts connections and sends nothing as unreachable", async () => {
  const sockets: Socket[] = [];
  const silent = createServer((socket) => void sockets.push(socket)).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const address = silent.address();
  if (typeof address !== "object" || address === null) throw new Error("not listening");
  const env = { DB_HOST: "127.0.0.1", DB_PORT: String(address.port) };
  const options = { environment: "development", service: "auth", dataDir: "/nowhere" } as const;
  const folder = new URL("../../../drizzle/auth", import.meta.url);
  const database = await openDatabase(valueOrThrow(resolveDatabaseSettings(env, options)), {
    schema: "auth",
    folder,
  });
  const asked = stopwatch();
  expect(await database.isReachable()).toBe(false);
  expect(asked()).toBeLessThan(4_000);
  // Closing a connection that says nothing takes as long as the database may take to say goodbye.
  for (const socket of sockets) socket.destroy();
  silent.close();
  await database.close();
});
