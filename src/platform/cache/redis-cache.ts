/** The cache as a Redis or Valkey server. A connection is used once it has passed a check, repeated every second. */
import { createHash } from "node:crypto";
import { createClient } from "@redis/client";
import { withTimeout } from "../base/deadlines.ts";
import { startLoop } from "../base/loop.ts";
import { type Cache, CacheAwayError, type CacheOptions } from "./cache.ts";
import type { CacheSettings } from "./cache-settings.ts";

/** Milliseconds in which a connection is made and signed in. */
const connectTimeoutMs = 1_000;
/** Milliseconds between checks, and between tries to connect. */
const checkMs = 1_000;
/** Milliseconds between two warnings that the cache went away, if it comes and goes. */
const sayAgainMs = 60_000;

type Connection = ReturnType<typeof connectionTo>;

export async function createRedisCache(options: CacheOptions): Promise<Cache> {
  const { settings, prefix, name, whileAway, rehearse, logger, observer, responseMs = 250 } = options;
  const at = { host: settings.host, port: settings.port };
  /** The connection that has passed its last check. */
  let usable: Connection | undefined;
  let isClosed = false;
  let isAwaySaid = false;
  let saidAt = Number.NEGATIVE_INFINITY;
  const hashes = new Map<string, string>();

  /** The cache is away from now on, unless it is so already. */
  function giveUp(connection: Connection, reason: string): void {
    connection.destroy();
    if (isClosed || (connection !== usable && usable)) return;
    usable = undefined;
    observer.usable(false);
    if (isAwaySaid) return;
    isAwaySaid = true;
    const level = performance.now() - saidAt > sayAgainMs ? "warn" : "debug";
    if (level === "warn") saidAt = performance.now();
    logger[level]({ ...at, reason }, `The cache cannot be used; ${whileAway}. Trying again every second.`);
  }

  /** Makes a connection, or looks whether the present one is still good. */
  async function check(): Promise<number> {
    const connection = usable ?? connectionTo(settings, name, (made, error) => giveUp(made, error.message));
    try {
      if (!usable) await responseOf(connection.connect(), connectTimeoutMs);
      const objection = await responseOf(objectionTo(connection, `${prefix}check`), responseMs);
      if (objection !== undefined) throw new Error(objection);
      if (!usable) await rehearse({ run: (...script) => runOn(connection, ...script) });
      if (isClosed) connection.destroy();
      else use(connection);
    } catch (error) {
      giveUp(connection, messageOf(error));
    }
    return checkMs;
  }

  function use(connection: Connection): void {
    // It may have been given up since the check began.
    if (!connection.isReady || usable === connection) return;
    usable = connection;
    observer.usable(true);
    if (isAwaySaid) logger.info(at, "The cache is used again");
    isAwaySaid = false;
  }

  /** Rejects if it fails, or takes too long. */
  function runOn(
    connection: Connection,
    script: string,
    keys: readonly string[],
    values: readonly (string | number)[],
  ): Promise<unknown> {
    const hash = hashes.get(script) ?? createHash("sha1").update(script).digest("hex");
    hashes.set(script, hash);
    const rest = [String(keys.length), ...keys.map((key) => prefix + key), ...values.map(String)];
    const running = connection
      .sendCommand(["EVALSHA", hash, ...rest])
      .catch((error) =>
        messageOf(error).startsWith("NOSCRIPT")
          ? connection.sendCommand(["EVAL", script, ...rest])
          : Promise.reject(error),
      );
    return responseOf(running, responseMs);
  }

  observer.usable(false);
  await check();
  const loop = startLoop(check, checkMs);
  return {
    async run(...script) {
      const connection = usable;
      if (!connection) throw new CacheAwayError("the cache is away");
      try {
        return await runOn(connection, ...script);
      } catch (error) {
        giveUp(connection, messageOf(error));
        throw new CacheAwayError("the cache did not do it", { cause: error });
      }
    },
    async close() {
      isClosed = true;
      await loop.stop();
      usable?.destroy();
    },
  };
}

/** A connection that is not made yet, and that is not made again when it is lost. */
function connectionTo(
  { host, port, username, password, isSecure, ca }: CacheSettings,
  name: string,
  onError: (connection: Connection, error: Error) => void,
) {
  const reconnects = { connectTimeout: connectTimeoutMs, reconnectStrategy: false } as const;
  const connection = createClient({
    socket: isSecure
      ? { host, port, ...reconnects, tls: true, ...(ca !== undefined && { ca }) }
      : { host, port, ...reconnects },
    ...(username !== undefined && { username }),
    ...(password !== undefined && { password }),
    name,
    RESP: 2,
    disableOfflineQueue: true,
    disableClientInfo: true,
    maintNotifications: "disabled",
  });
  connection.on("error", (error: Error) => onError(connection, error));
  return connection;
}

/** Why the server must not be used; undefined if it may. One that evicts keys lets callers choose what is forgotten. */
async function objectionTo(connection: Connection, key: string): Promise<string | undefined> {
  const [info] = await Promise.all([
    connection.sendCommand(["INFO"]),
    connection.sendCommand(["SET", key, "1", "PX", String(checkMs)]),
  ]);
  const fields = new Map(
    [...String(info).matchAll(/^(\w+):(.*?)\r?$/gm)].map(([, field, value]) => [field, value]),
  );
  const policy = fields.get("maxmemory_policy") ?? "noeviction";
  if (Number(fields.get("maxmemory") ?? 0) > 0 && policy !== "noeviction")
    return `its maxmemory-policy is ${policy}, which forgets counts when memory is short; set it to noeviction`;
  if (fields.get("redis_mode") === "cluster") return "it is a Redis Cluster, which is not spoken here";
  return fields.get("role") === "slave" ? "it is a replica" : undefined;
}

function responseOf<T>(work: Promise<T>, timeoutMs: number): Promise<T> {
  return withTimeout(work, timeoutMs, () => {
    throw new Error(`no response within ${timeoutMs} ms`);
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
