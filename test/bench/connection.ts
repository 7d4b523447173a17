/** HTTP/1.1 for loads, in as few steps as can be: what a load takes itself, its core cannot give to the database. */
import { connect } from "node:net";

/** A request with a form, as bytes. */
export function formRequest(
  { port, path, authorization }: { port: string; path: string; authorization: string },
  body: string,
): Buffer {
  return Buffer.from(
    `POST ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nAuthorization: ${authorization}\r\n` +
      `Content-Type: application/x-www-form-urlencoded\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  );
}

/** A kept-alive connection with one request in flight. */
export interface Connection {
  send(request: Buffer): void;
  end(): void;
}

/**
 * Connects, and begins.
 * @param events `begin` sends the first request; `answered` is called with the whole answer, headers and body
 */
export function openConnection(
  port: string,
  events: { begin(connection: Connection): void; answered(answer: string, connection: Connection): void },
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const socket = connect(Number(port), "127.0.0.1");
  socket.setNoDelay(true);
  let pending = "";
  const connection: Connection = {
    send: (request) => void socket.write(request),
    end() {
      socket.end();
      resolve();
    },
  };
  socket.setEncoding("latin1");
  socket.on("connect", () => events.begin(connection));
  socket.on("error", reject);
  socket.on("data", (text: string) => {
    pending += text;
    const head = pending.indexOf("\r\n\r\n");
    if (head === -1) return;
    const length = Number(/\r\ncontent-length: (\d+)/i.exec(pending.slice(0, head + 2))?.[1] ?? 0);
    if (pending.length < head + 4 + length) return;
    const answer = pending;
    pending = "";
    events.answered(answer, connection);
  });
  return promise;
}
