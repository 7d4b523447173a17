/** An address that outlives the servers behind it, as a balancer's does: connections are passed on as they are. */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

export interface Front {
  readonly port: number;
  /** http://127.0.0.1:port */
  readonly origin: string;
  /** Where connections go from now on, or nowhere; those that there are stay where they are. */
  leadTo(port: number | undefined): void;
  close(): Promise<void>;
}

/** Listens on a port of its own, unless one is given. Until it leads anywhere, it closes what connects. */
export async function openFront(port = 0): Promise<Front> {
  const sockets = new Set<Socket>();
  let target: number | undefined;
  const server = createServer((client) => {
    if (target === undefined) return void client.destroy();
    const behind = connect(target, "127.0.0.1");
    for (const [from, to] of [
      [client, behind],
      [behind, client],
    ] as const) {
      sockets.add(from);
      from.pipe(to);
      from.on("error", () => to.destroy());
      from.on("close", () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  }).listen(port, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("not listening");
  return {
    port: address.port,
    origin: `http://127.0.0.1:${address.port}`,
    leadTo(port) {
      target = port;
    },
    async close() {
      const closed = once(server, "close");
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
