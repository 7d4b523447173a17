/** A real HTTP proxy in front of a server, which changes answers. */
import { once } from "node:events";
import { createServer, type IncomingMessage, request, type ServerResponse } from "node:http";

/** An answer on its way. */
export interface Passing {
  readonly method: string;
  readonly path: string;
  status: number;
  contentType: string | undefined;
  body: string;
}

export interface Proxy {
  readonly origin: string;
  close(): Promise<void>;
}

/** @param change is shown every answer, and may change it */
export async function startProxy(target: string, change: (answer: Passing) => void): Promise<Proxy> {
  const server = createServer((incoming, outgoing) => {
    pass(target, incoming, outgoing, change).catch(() => outgoing.destroy());
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address ? address.port : 0;
  return {
    origin: `http://127.0.0.1:${port}`,
    async close() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}

async function pass(
  target: string,
  incoming: IncomingMessage,
  outgoing: ServerResponse,
  change: (answer: Passing) => void,
): Promise<void> {
  const { method = "GET", url = "/", headers } = incoming;
  const onward = request(`${target}${url}`, { method, headers });
  incoming.pipe(onward);
  const [answer]: IncomingMessage[] = await once(onward, "response");
  if (!answer) return;
  const {
    "content-type": contentType,
    "content-length": _length,
    "transfer-encoding": _coding,
    ...rest
  } = answer.headers;
  const chunks: Buffer[] = [];
  for await (const chunk of answer) chunks.push(Buffer.from(chunk));
  const bytes = Buffer.concat(chunks);
  const passing = {
    method,
    path: url,
    status: answer.statusCode ?? 0,
    contentType,
    body: bytes.toString("utf8"),
  };
  const before = passing.body;
  change(passing);
  const body = passing.body === before ? bytes : Buffer.from(passing.body);
  const type = passing.contentType === undefined ? {} : { "content-type": passing.contentType };
  outgoing.writeHead(passing.status, {
    ...rest,
    ...type,
    ...(body.length > 0 && { "content-length": body.length }),
  });
  outgoing.end(body);
}
