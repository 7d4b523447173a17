/** The client of HTTP/2 that messages are sent by, seen from a provider. */
import { generateKeyPairSync } from "node:crypto";
import { once } from "node:events";
import { createServer, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import { beforeAll, expect, test } from "vitest";
import { systemClock } from "../../../src/platform/base/clock.ts";
import { createProviders } from "../../../src/push/providers/create-providers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { sendOne } from "./providers-fixture.ts";

const server = createServer((_, response) => response.writeHead(503).end());
const cleanup = suiteCleanup();
beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanup.defer(() => server[Symbol.asyncDispose]());
});

const privateKey = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey;
const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();

// Ours announces that it has no table for compressed fields, and Node's has the usual one.
test("messages are sent by our own client", async () => {
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const providers = createProviders(
    {
      names: ["apns"],
      apns: { endpoint, key, keyId: "ABC123DEFG", teamId: "DEF123GHIJ", topic: "com.example.app" },
      fcm: undefined,
      webpush: undefined,
      outboxFile: undefined,
      imageBaseUrl: undefined,
    },
    systemClock,
  );
  const opened: Promise<ServerHttp2Session[]> = once(server, "session");
  const apns = providers.get("apns");
  if (apns === undefined) throw new Error("There is no provider.");
  expect(await sendOne(apns, "a".repeat(64))).toMatchObject({ reason: "503" });
  const [session] = await opened;
  expect(session?.remoteSettings.headerTableSize).toBe(0);
  await apns.close();
});
