/**
 * A way to PostgreSQL that a test can hold up at the worst moment: before a statement gets there, or after it
 * has been run and before anybody is told.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

export interface DatabaseGate {
  readonly port: number;
  /**
   * Holds up the connection by which the next message that holds `text` comes: `before` the message is passed
   * on, or `after` it, so that only its answer stays away.
   * @returns resolves when that has happened; `release` lets everything through that was held
   */
  hold(text: string, when: "before" | "after"): Promise<{ release(): void }>;
  /** Nothing passes any more, and nobody is told: a server that hangs. @returns ends it */
  freeze(): () => void;
  close(): Promise<void>;
}

interface Watch {
  readonly text: string;
  readonly when: "before" | "after";
  happened(held: { release(): void }): void;
}

/** What flows one way, and can be stopped. */
function valve(to: Socket) {
  let held: Buffer[] | undefined;
  return {
    pass(bytes: Buffer) {
      if (held) held.push(bytes);
      else to.write(bytes);
    },
    stop() {
      held ??= [];
    },
    release() {
      const waiting = held ?? [];
      held = undefined;
      for (const bytes of waiting) to.write(bytes);
    },
  };
}

/** Listens on a port of its own and passes everything on to this one. */
export async function openDatabaseGate(host: string, port: number): Promise<DatabaseGate> {
  let watch: Watch | undefined;
  let isFrozen = false;
  const sockets = new Set<Socket>();
  const open = new Set<ReturnType<typeof valve>>();

  const server = createServer((client) => {
    const database = connect(port, host);
    const valves = { before: valve(database), after: valve(client) };
    for (const one of Object.values(valves)) {
      open.add(one);
      if (isFrozen) one.stop();
      client.once("close", () => open.delete(one));
    }
    for (const socket of [client, database]) {
      sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => {
        sockets.delete(socket);
        (socket === client ? database : client).destroy();
      });
    }
    client.on("data", (bytes) => {
      const met = watch && bytes.includes(watch.text) ? watch : undefined;
      if (met) {
        watch = undefined;
        valves[met.when].stop();
      }
      valves.before.pass(bytes);
      met?.happened({ release: () => valves[met.when].release() });
    });
    database.on("data", (bytes) => valves.after.pass(bytes));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("not listening");

  return {
    port: address.port,
    hold: (text, when) =>
      new Promise((happened) => {
        watch = { text, when, happened };
      }),
    freeze() {
      isFrozen = true;
      for (const one of open) one.stop();
      return () => {
        isFrozen = false;
        for (const one of open) one.release();
      };
    },
    async close() {
      const closed = once(server, "close");
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
