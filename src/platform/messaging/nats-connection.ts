/** A connection to NATS, made at first use and again whenever it was lost; meanwhile calls fail within seconds. */
import {
  type ConnectionOptions,
  connect,
  credsAuthenticator,
  type NatsConnection,
} from "@nats-io/transport-node";
import type { Logger } from "pino";
import type { BrokerSettings } from "./broker-settings.ts";

interface Options {
  readonly settings: BrokerSettings;
  readonly name: string;
  /** Called when the connection is lost, and when there is one again: perhaps to a broker without its disk. */
  readonly changed: () => void;
  readonly logger: Logger;
}

interface BrokerConnection {
  /** Rejects while there is no connection: at once, if there was one that is lost. */
  get(): Promise<NatsConnection>;
  close(): Promise<void>;
}

/** The timeout of a connection and of a request, in milliseconds. */
export const timeoutMs = 3_000;
/** Milliseconds between tries to connect again. */
const reconnectMs = 1_000;
/** Milliseconds between pings: a connection on which two get no response is made anew. */
const pingMs = 5_000;

export function createNatsConnection({ settings, name, changed, logger }: Options): BrokerConnection {
  let connecting: Promise<NatsConnection> | undefined;
  let connected: NatsConnection | undefined;
  let isClosed = false;
  let isLost = false;

  function opened(made: NatsConnection): NatsConnection {
    connected = made;
    void watch(made);
    void made.closed().then(() => {
      connecting = undefined;
      connected = undefined;
      isLost = false;
    });
    if (isClosed) void made.close();
    return made;
  }

  async function watch(made: NatsConnection): Promise<void> {
    // The library reports a disconnection also for each try that the broker refuses.
    for await (const { type } of made.status()) {
      if (type === "disconnect" && !isLost) {
        isLost = true;
        changed();
        logger.warn("The connection to the broker was lost");
      }
      if (type === "reconnect" && isLost) {
        isLost = false;
        changed();
        logger.info("The broker is connected again");
      }
    }
  }

  return {
    get() {
      if (isClosed) return Promise.reject(new Error("the connection to the broker has been closed"));
      if (isLost) return Promise.reject(new Error("the connection to the broker is lost"));
      connecting ??= connect(connectionOptions(settings, name)).then(opened, (error) => {
        connecting = undefined;
        throw error;
      });
      return connecting;
    },
    async close() {
      isClosed = true;
      // A connection that is still being made is closed once it is made.
      await connected?.close();
    },
  };
}

function connectionOptions({ servers, credentials, ca }: BrokerSettings, name: string): ConnectionOptions {
  const isSecure = ca !== undefined || servers.some((url) => url.startsWith("tls:"));
  return {
    servers: [...servers],
    // The settings were checked; the addresses that a server announces were not.
    ignoreClusterUpdates: true,
    name,
    timeout: timeoutMs,
    pingInterval: pingMs,
    maxPingOut: 2,
    maxReconnectAttempts: -1,
    reconnectTimeWait: reconnectMs,
    // A password that is being changed on the broker must not end the connection for good.
    ignoreAuthErrorAbort: true,
    ...(isSecure && { tls: ca === undefined ? {} : { ca } }),
    ...(credentials &&
      ("file" in credentials
        ? { authenticator: credsAuthenticator(new TextEncoder().encode(credentials.file)) }
        : { user: credentials.user, pass: credentials.password })),
  };
}
