/** The socket of a connection: TCP, or TLS with ALPN (RFC 7301, RFC 9113 section 3). */
import { once } from "node:events";
import { isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { type ConnectionOptions, noHttp2 } from "./connection.ts";
import { connectTcp } from "./happy-eyeballs.ts";

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
