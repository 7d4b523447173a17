/**
 * A way to PostgreSQL that a test can cut: connections break, and new ones are refused, as where the database
 * server is gone; or nothing passes any more, as where it hangs; or what a network does to the connections of now,
 * while new ones work; or everything takes its time.
 */
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import { codeOf } from "../../src/platform/base/error-code.ts";
import { onSparePorts, sparePort } from "./spare-port.ts";

export interface DatabaseWire {
  readonly port: number;
  /** @returns puts it together again, with another server at the other end if one is given */
  cut(): Promise<(to?: { readonly host: string; readonly port: number }) => Promise<void>>;
  /** @returns lets through what has been waiting */
  hang(): () => void;
  /** New connections are refused; those of now stay. @returns lets new ones come again */
  refuse(): () => Promise<void>;
  /** The connections of now are half-open from now on: what is sent on them is lost, and neither end is told. */
  strand(): void;
  /** The server closes its ends of stranded connections, as when its keepalive was not answered. */
  giveUpStranded(): void;
  /** The connections of now are reset, at both ends. */
  reset(): void;
  /** PostgreSQL's end of the connections of now is closed (FIN); it reads on. Resolves at the moment they are sent. */
  end(): Promise<void>;
  /** Everything takes so many milliseconds longer, each way; 0 ends that. */
  delay(ms: number): void;
  close(): Promise<void>;
}

/** Listens on a port of its own and passes everything on to this one. */
export async function openDatabaseWire(host: string, port: number): Promise<DatabaseWire> {
  const sockets = new Set<Socket>();
  const clients = new Set<Socket>();
  const stranded = new WeakSet<Socket>();
  /** The server's ends of all connections. */
  const databases = new Set<Socket>();
  let isHanging = false;
  let delayMs = 0;
  let target = { host, port };

  function pass(client: Socket): void {
    const database = connect(target.port, target.host);
    clients.add(client);
    databases.add(database);
    database.once("close", () => databases.delete(database));
    client.once("close", () => clients.delete(client));
    for (const [from, to] of [
      [client, database],
      [database, client],
    ] as const) {
      sockets.add(from);
      const late: { readonly bytes: Buffer; readonly due: number }[] = [];
      // In their order, whatever timer brings us here: nothing overtakes what is on its way.
      const flush = () => {
        const now = performance.now();
        for (let next = late[0]; next && next.due <= now; next = late[0]) {
          to.write(next.bytes);
          late.shift();
        }
      };
      from.on("data", (bytes) => {
        if (stranded.has(from)) return;
        late.push({ bytes, due: performance.now() + delayMs });
        if (late.length === 1 && delayMs === 0) flush();
        // A timer may be a millisecond early.
        else setTimeout(flush, delayMs + 1);
      });
      from.on("error", () => from.destroy());
      from.on("close", () => {
        sockets.delete(from);
        if (!stranded.has(from)) to.destroy();
      });
      if (isHanging) from.pause();
    }
  }

  async function listen(at: number): Promise<Server> {
    const server = createServer(pass).listen(at, "127.0.0.1");
    await once(server, "listening");
    return server;
  }

  async function shut(): Promise<void> {
    const closed = once(server, "close");
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  }

  const { ownPort, first } = await onSparePorts("The wire", async () => {
    const candidate = sparePort();
    try {
      return { ownPort: candidate, first: await listen(candidate) };
    } catch (error) {
      if (codeOf(error) === "EADDRINUSE") return undefined;
      throw error;
    }
  });
  let server = first;
  return {
    port: ownPort,
    async cut() {
      await shut();
      return async (to = target) => {
        target = to;
        server = await listen(ownPort);
      };
    },
    hang() {
      isHanging = true;
      for (const socket of sockets) socket.pause();
      return () => {
        isHanging = false;
        for (const socket of sockets) socket.resume();
      };
    },
    refuse() {
      server.close();
      return async () => {
        server = await listen(ownPort);
      };
    },
    strand() {
      for (const socket of sockets) stranded.add(socket);
    },
    giveUpStranded() {
      for (const database of databases) if (stranded.has(database)) database.destroy();
    },
    reset() {
      for (const socket of sockets) socket.resetAndDestroy();
    },
    async end() {
      await Promise.all([...clients].map((client) => new Promise<void>((sent) => client.end(sent))));
    },
    delay(ms) {
      delayMs = ms;
    },
    async close() {
      if (server.listening) await shut();
    },
  };
}
