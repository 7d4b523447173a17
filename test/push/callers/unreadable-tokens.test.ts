/** Whatever cannot be read of a token is 401 in every protocol, and no line of the log. */
import { randomUUID } from "node:crypto";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
} from "@connectrpc/connect-node";
import * as fc from "fast-check";
import { beforeAll, describe, expect, test } from "vitest";
import { DeliveryService } from "../../../gen/proto/push/v1/delivery_pb.ts";
import { type Callers, createCallers } from "../../../src/push/callers/callers.ts";
import { base64url, compact } from "../../auth/tokens/forged-jwts.ts";
import { type CapturedLog, captureLog } from "../../support/captured-log.ts";
import { movableClock } from "../../support/movable-clock.ts";
import { type PushServer, startPushServer } from "../../support/push-server.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Issuer, newKey, type SigningKey, startIssuer } from "./issuer.ts";

/** A header with a byte that is not UTF-8. */
const notUtf8 = "eyJhbGciOiJSUzI1NiIsInR5cCI6ImF0K2p3dCIsImtpZCI6IngiLCJ5Ijoi_yJ9.e30.AAAA";

const unreadable: Readonly<Record<string, string>> = {
  "a header that is not UTF-8": notUtf8,
  "a payload that is not UTF-8": `${base64url({ alg: "RS256", typ: "at+jwt", kid: "x" })}.${base64url(Buffer.from('{"a":"\xff"}', "latin1"))}.AAAA`,
  "a header that is no object": `${base64url("[]")}.e30.AAAA`,
  "a kid that is a list": `${base64url({ alg: "RS256", typ: "at+jwt", kid: ["x"] })}.e30.AAAA`,
  "a typ that is a number": `${base64url({ alg: "RS256", typ: 1, kid: "x" })}.e30.AAAA`,
  "an alg that is an object": `${base64url({ alg: {}, typ: "at+jwt", kid: "x" })}.e30.AAAA`,
  "three dots": "...",
};

describe("a token that cannot be read", () => {
  let server: PushServer;
  let transports: Readonly<Record<string, Transport>>;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    server = await startPushServer("PGlite");
    cleanup.defer(() => server.stop());
    const web = { baseUrl: server.origin, httpVersion: "1.1" } as const;
    transports = {
      gRPC: createGrpcTransport({ baseUrl: `http://${server.grpc}` }),
      Connect: createConnectTransport(web),
      "gRPC-Web": createGrpcWebTransport(web),
    };
  });

  const operations = [
    ["POST", "token"],
    ["DELETE", "token"],
    ["POST", "push"],
    ["GET", "notifications-history"],
    ["GET", "notifications-summary"],
    ["GET", "notifications"],
    ["GET", `notifications/${randomUUID()}`],
    ["GET", "dead-letters"],
  ] as const;

  test.each(Object.entries(unreadable))("is 401 at every operation: %s", async (_, token) => {
    for (const [method, path] of operations) {
      const response = await fetch(`${server.base}/v1/pushprovider/${path}`, {
        method,
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        ...(method === "POST" && { body: "{}" }),
      });
      expect([response.status, await response.json()], path).toMatchObject([
        401,
        { code: "unauthenticated" },
      ]);
    }
    expect(server.logs()).not.toContain('"level":"error"');
    expect(server.logs()).not.toContain("    at ");
  });

  test.each(["gRPC", "Connect", "gRPC-Web"])("is UNAUTHENTICATED over %s", async (protocol) => {
    const transport = transports[protocol];
    if (!transport) throw new Error(`no transport ${protocol}`);
    for (const [name, token] of Object.entries(unreadable)) {
      const headers = { authorization: `Bearer ${token}` };
      const watch = createClient(DeliveryService, transport).watchProgress(
        { notificationId: randomUUID() },
        { headers },
      );
      const failure = Array.fromAsync(watch).then(
        () => undefined,
        (error: unknown) => ConnectError.from(error).code,
      );
      expect(await failure, name).toBe(Code.Unauthenticated);
    }
  });
});

describe("a token that was changed", () => {
  let issuer: Issuer;
  let key: SigningKey;
  let callers: Callers;
  let log: CapturedLog;
  const clock = movableClock();
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    issuer = await startIssuer();
    cleanup.defer(() => issuer.stop());
    key = newKey("k-1");
    issuer.keys = [key];
    log = captureLog();
    const created = createCallers({
      issuer: issuer.issuer,
      audience: undefined,
      userAppClientIds: ["app"],
      backofficeClientId: "office",
      introspection: undefined,
      clock,
      logger: log.logger,
    });
    cleanup.defer(() => created.close());
    callers = created;
    expect(await callers.user(`Bearer ${issuer.token(key, clock.now())}`)).toEqual({
      userId: "u-1",
      clientId: "app",
    });
  });

  /** Bytes put into a text at some place, instead of some of its bytes. */
  const edit = fc.record({
    at: fc.nat(2000),
    removed: fc.nat(3),
    inserted: fc.uint8Array({ maxLength: 3 }),
  });
  const edited = (
    bytes: Buffer,
    { at, removed, inserted }: { at: number; removed: number; inserted: Uint8Array },
  ) => {
    const place = at % (bytes.length + 1);
    return Buffer.concat([bytes.subarray(0, place), inserted, bytes.subarray(place + removed)]);
  };

  /** Asked for, it is a caller or nobody: never an error. */
  async function isAnswered(token: string): Promise<boolean> {
    const caller = await callers.user(`Bearer ${token}`).catch((error: unknown) => {
      // A changed client is another application.
      expect(error).toMatchObject({ kind: { status: 403 } });
      return undefined;
    });
    return caller === undefined || typeof caller.userId === "string";
  }

  const header = () => Buffer.from(JSON.stringify({ alg: "RS256", typ: "at+jwt", kid: key.kid }));
  const payload = () => Buffer.from(JSON.stringify(issuer.genuine(key, () => clock.now()).claims()));

  test("in any bytes of its header and payload is read or refused, also where its signature is good", async () => {
    await fc.assert(
      fc.asyncProperty(
        edit,
        edit,
        fc.constantFrom("header", "payload", "both"),
        async (one, other, where) => {
          const changedHeader = where === "payload" ? header() : edited(header(), one);
          const changedPayload = where === "header" ? payload() : edited(payload(), other);
          const input = `${base64url(changedHeader)}.${base64url(changedPayload)}`;
          expect(await isAnswered(compact(changedHeader, changedPayload, key.privateKey, "RS256"))).toBe(
            true,
          );
          expect(await isAnswered(`${input}.${base64url(Buffer.alloc(256))}`)).toBe(true);
        },
      ),
      { numRuns: 2000 },
    );
  });

  test("in any member of its header and payload is read or refused", async () => {
    const names = [
      "alg",
      "typ",
      "kid",
      "crit",
      "b64",
      "jwk",
      "iss",
      "sub",
      "aud",
      "exp",
      "nbf",
      "iat",
      "jti",
    ];
    const name = fc.constantFrom(...names, "client_id", "azp", "events", "at_hash", "__proto__", "toString");
    const member = fc.tuple(name, fc.jsonValue());
    await fc.assert(
      fc.asyncProperty(
        fc.array(member, { maxLength: 3 }),
        fc.array(member, { maxLength: 3 }),
        async (inHeader, inPayload) => {
          const changed = (text: Buffer, members: [string, unknown][]) =>
            JSON.stringify({ ...JSON.parse(text.toString()), ...Object.fromEntries(members) });
          const token = compact(
            changed(header(), inHeader),
            changed(payload(), inPayload),
            key.privateKey,
            "RS256",
          );
          expect(await isAnswered(token)).toBe(true);
        },
      ),
      { numRuns: 2000 },
    );
  });

  test("in any character is read or refused", async () => {
    const good = issuer.token(key, clock.now());
    await fc.assert(
      fc.asyncProperty(edit, async (change) => {
        expect(await isAnswered(edited(Buffer.from(good), change).toString("latin1"))).toBe(true);
      }),
      { numRuns: 2000 },
    );
    expect(log.lines().filter(({ level }) => level === "error")).toEqual([]);
  });
});
