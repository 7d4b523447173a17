/** The socket of a connection: TCP, or TLS with ALPN (RFC 9113 section 3). */
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { ConnectionOptions } from "./connection.ts";

/**
 * Connects. The peer's certificate must be valid for the host.
 * @param onConnected called with whether the peer speaks HTTP/2, as far as TLS shows
 */
export function openSocket(
  { origin, ca, lookup }: ConnectionOptions,
  onConnected: (isHttp2: boolean) => void,
): Socket {
  const { protocol, hostname, port } = new URL(origin);
  const host = hostname.replace(/^\[(.+)\]$/, "$1");
  if (protocol === "http:") {
    const socket = connectTcp({ host, port: Number(port || 80), noDelay: true, ...(lookup && { lookup }) });
    return socket.once("connect", () => onConnected(true));
  }
  const socket = connectTls({
    host,
    port: Number(port || 443),
    ALPNProtocols: ["h2"],
    // An address is not a name of SNI (RFC 6066 section 3); the certificate is still checked against it.
    ...(isIP(host) === 0 && { servername: host }),
    ...(ca !== undefined && { ca }),
    ...(lookup && { lookup }),
  });
  // RFC 9113 section 9.2.1 forbids it.
  socket.disableRenegotiation();
  return socket.setNoDelay().once("secureConnect", () => onConnected(socket.alpnProtocol === "h2"));
}
