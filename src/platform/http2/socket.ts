/** The socket of a connection: TCP, or TLS with ALPN (RFC 7301, RFC 9113 section 3). */
import { lookup as systemLookup } from "node:dns";
import { once } from "node:events";
import { connect, isIP, type LookupFunction, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { codeOf } from "../base/error-code.ts";
import { type ConnectionOptions, noHttp2 } from "./connection.ts";

/** Milliseconds from one attempt to the next (RFC 8305 section 5). */
const attemptDelayMs = 250;

interface TcpTarget {
  /** A name, or an address without brackets. */
  readonly host: string;
  readonly port: number;
  /** Asked for the addresses of each family apart; the system's unless given. */
  readonly lookup?: LookupFunction | undefined;
  /** Its abort ends all attempts. It has no effect on the connection. */
  readonly signal: AbortSignal;
}

/**
 * Connects to the address that is reached first, by Happy Eyeballs (RFC 8305). Node's own ends an attempt when it begins
 * the next. @throws what failed first, ENOTFOUND only if there is nothing else
 */
export function connectTcp({ host, port, lookup = systemLookup, signal }: TcpTarget): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const addresses: Record<4 | 6, string[]> = { 4: [], 6: [] };
  const attempts = new Set<Socket>();
  const failures: unknown[] = [];
  let pendingLookups = 0;
  let family: 4 | 6 = 6;
  let timer: NodeJS.Timeout | undefined;
  let hasEnded = false;

  function end(settle: () => void): void {
    hasEnded = true;
    clearTimeout(timer);
    signal.removeEventListener("abort", abort);
    for (const attempt of attempts) attempt.destroy();
    settle();
  }

  const abort = (): void => end(() => reject(signal.reason));

  function tryNext(): void {
    clearTimeout(timer);
    timer = undefined;
    const other = family === 4 ? 6 : 4;
    if (addresses[other].length > 0) family = other;
    const address = addresses[family].shift();
    if (address !== undefined) attempt(address);
    else if (attempts.size === 0 && pendingLookups === 0) {
      end(() => reject(failures.find((failure) => codeOf(failure) !== "ENOTFOUND") ?? failures[0]));
    }
  }

  function attempt(address: string): void {
    const socket = connect({ host: address, port, noDelay: true });
    attempts.add(socket);
    timer = setTimeout(tryNext, attemptDelayMs);
    const onError = (error: unknown): void => {
      attempts.delete(socket);
      failures.push(error);
      tryNext();
    };
    socket.once("error", onError).once("connect", () => {
      socket.off("error", onError);
      attempts.delete(socket);
      end(() => resolve(socket));
    });
  }

  function lookUp(wanted: 4 | 6): void {
    pendingLookups += 1;
    lookup(host, { all: true, family: wanted }, (error, found) => {
      pendingLookups -= 1;
      const all = Array.isArray(found) ? found : [];
      addresses[wanted].push(...all.filter((one) => one.family === wanted).map(({ address }) => address));
      if (error) failures.push(error);
      if (timer === undefined && !hasEnded) tryNext();
    });
  }

  signal.addEventListener("abort", abort);
  if (signal.aborted) abort();
  else if (isIP(host) > 0) attempt(host);
  else for (const wanted of [4, 6] as const) lookUp(wanted);
  return promise;
}

/**
 * Connects; the peer's certificate must be valid for the host. @param signal ends the attempt, not the socket
 * @throws the error of connecting; one with the code {@link noHttp2} if TLS shows that the peer does not speak it
 */
export async function openSocket(
  { origin, ca, lookup }: ConnectionOptions,
  signal: AbortSignal,
  protocol: "h2" | "http/1.1" = "h2",
): Promise<Socket> {
  const { protocol: scheme, hostname, port } = new URL(origin);
  const host = hostname.replace(/^\[(.+)\]$/, "$1");
  const isSecure = scheme === "https:";
  const tcp = await connectTcp({ host, port: Number(port || (isSecure ? 443 : 80)), lookup, signal });
  if (!isSecure) return tcp;
  const socket = connectTls({
    socket: tcp,
    host,
    ALPNProtocols: [protocol],
    // An address is not a name of SNI (RFC 6066 section 3); the certificate is still checked against it.
    ...(isIP(host) === 0 && { servername: host }),
    ...(ca !== undefined && { ca }),
  });
  // RFC 9113 section 9.2.1 forbids it.
  socket.disableRenegotiation();
  try {
    await once(socket, "secureConnect", { signal });
    if (protocol !== "h2" || socket.alpnProtocol === "h2") return socket;
    throw Object.assign(new Error("ALPN chose another protocol"), { code: noHttp2 });
  } catch (error) {
    socket.destroy();
    throw error;
  }
}
