/** The cipher suites of TLS 1.2 that a server with a certificate accepts, on either of its ports. */
import { connect } from "node:tls";
import { beforeAll, expect, test } from "vitest";
import { type AuthServer, startAuthServer } from "./support/auth-server.ts";
import { localhostCertificate } from "./support/localhost-certificate.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

let server: AuthServer;
const cleanup = suiteCleanup();
beforeAll(async () => {
  const { cert, key } = localhostCertificate;
  server = await startAuthServer("PGlite", { env: { TLS_CERT: cert, TLS_KEY: key } });
  cleanup.defer(() => server.stop());
});

/** @returns the suite that both ends agree on; undefined if the server refuses all of them */
function handshake(port: number, ciphers: string): Promise<string | undefined> {
  return new Promise((resolve) => {
    const { cert } = localhostCertificate;
    const options = { port, host: "127.0.0.1", ca: cert, maxVersion: "TLSv1.2", ciphers } as const;
    const socket = connect(options, () => {
      resolve(socket.getCipher().name);
      socket.destroy();
    });
    socket.on("error", () => resolve(undefined));
  });
}

test.each(["HTTP", "gRPC"])("the %s port refuses CBC, and takes what is authenticated", async (protocol) => {
  const port = Number(protocol === "HTTP" ? new URL(server.origin).port : server.grpc.split(":").at(-1));
  // The certificate has a key of ECDSA; those of RSA are the same suites with another signature.
  expect(await handshake(port, "ECDHE-ECDSA-AES128-GCM-SHA256")).toBe("ECDHE-ECDSA-AES128-GCM-SHA256");
  for (const suite of ["ECDHE-ECDSA-AES128-SHA256", "ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES128-SHA"])
    expect(await handshake(port, suite), suite).toBeUndefined();
});
