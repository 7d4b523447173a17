/** Floods of HTTP/2 on both ports: who breaks the rules loses the connection, and nobody else does. */
import { join } from "node:path";
import { credentials } from "@grpc/grpc-js";
import { describe, expect, it } from "vitest";
import { GrpcClient, loadMethod } from "../../support/grpc-client.ts";
import { flood, floodNames, isAllowed } from "../../support/http2-floods.ts";
import { localhostCertificate } from "../../support/localhost-certificate.ts";
import { startSheddableServers } from "../../support/sheddable-servers.ts";

const path = "/auth.v1.IntrospectionService/Introspect";
const root = join(import.meta.dirname, "../../..");
const introspect = loadMethod(
  join(root, "proto/auth/v1/introspection.proto"),
  "auth.v1.IntrospectionService",
  "Introspect",
);
const secured = credentials.createSsl(Buffer.from(localhostCertificate.cert));

describe.each([
  { name: "GRPC_PORT", isSecure: false },
  { name: "SERVER_PORT", isSecure: true },
])("on $name", ({ isSecure }) => {
  /** Both ports, and a caller on a connection of its own. */
  async function start() {
    const servers = await startSheddableServers({ tls: localhostCertificate });
    const port = isSecure ? servers.httpPort : servers.grpcPort;
    const client = new GrpcClient(port, isSecure ? secured : undefined);
    const call = () => client.unary(introspect, { token: "t" });
    return { ...servers, port, client, call };
  }

  it.each(floodNames.filter((name) => !isAllowed(name)))("a flood is cut: %s", async (name) => {
    const { port, client, call, release } = await start();
    release();
    expect(await call()).toMatchObject({ active: true });
    const { isCut, goaway } = await flood(port, name, { isSecure, path });
    expect(isCut).toBe(true);
    // The last frames may be lost with the connection.
    expect(goaway).not.toBe(0);
    expect(await call()).toMatchObject({ active: true });
    client.close();
  });

  it.each(floodNames.filter(isAllowed))("others are served beside a flood: %s", async (name) => {
    const { port, client, call, release } = await start();
    release();
    await call();
    const flooding = flood(port, name, { isSecure, path, forMs: 500 });
    expect(await call()).toMatchObject({ active: true });
    await flooding;
    client.close();
  });
});
