/**
 * The drills of docs/operate/rotation.md: each secret that takes restarts is replaced under load, in the order that the
 * page has. While a process is replaced its successor serves beside it, so both have to get along.
 */
import { createPublicKey, generateKeyPairSync, randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { SignJWT } from "jose";
import { beforeAll, describe, expect, test } from "vitest";
import { developmentClients } from "../src/auth/client-settings.ts";
import { keyFiles, makeKey, retireKeys, useNextKey } from "../src/auth/keys/key-folder.ts";
import {
  newApnsCredentials,
  newServiceAccount,
  newVapidCredentials,
} from "../src/development/provider-fakes/credentials.ts";
import { type ProviderFakes, startProviderFakes } from "../src/development/provider-fakes/provider-fakes.ts";
import { basic, newPhone } from "./support/auth-api.ts";
import { type Front, openFront } from "./support/front.ts";
import { createMigratedDatabase } from "./support/migrated-database.ts";
import { findNats, startNats } from "./support/nats.ts";
import { root } from "./support/program.ts";
import { findRedis, type Redis, startRedis } from "./support/redis.ts";
import { scrape, valuesOf } from "./support/scrape.ts";
import {
  backends,
  databaseEnvironment,
  type Environment,
  type Server,
  spawnServer,
} from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

const [oldSecret, newSecret] = ["the-old-secret-1234", "the-new-secret-5678"];
const both = JSON.stringify([oldSecret, newSecret]);
const otpKeys = [0, 1].map(() => generateKeyPairSync("ec", { namedCurve: "P-256" }));
const pems = otpKeys.map(({ publicKey }) => publicKey.export({ type: "spki", format: "pem" }).toString());
const [oldVapid, newVapid] = [newVapidCredentials(), newVapidCredentials()];
const clients = (clientSecret: string | readonly string[], revision: number) => {
  const [app, ...others] = developmentClients;
  return {
    OAUTH_SERVER_CLIENTS: JSON.stringify([{ ...app, clientSecret }, ...others]),
    OAUTH_SERVER_CLIENTS_REVISION: String(revision),
  };
};

/** One service: the processes that serve now, to which requests go in turn. */
class Service {
  readonly serving: Server[] = [];
  readonly #env: Environment;
  readonly #front: Front;
  readonly #grpc: Front;
  #turn = 0;

  constructor(env: Environment, front: Front, grpc: Front) {
    this.#env = env;
    this.#front = front;
    this.#grpc = grpc;
  }

  /** Starts a process with these settings from now on, then stops the one before. */
  async roll(changed: Environment, whileBoth: () => Promise<unknown>): Promise<void> {
    Object.assign(this.#env, changed);
    const next = await spawnServer("PostgreSQL", { env: { ...this.#env } });
    this.#front.leadTo(Number(new URL(next.origin).port));
    this.#grpc.leadTo(Number(next.grpc.split(":")[1]));
    this.serving.push(next);
    const before = this.serving.length > 1 ? this.serving[0] : undefined;
    if (!before) return;
    await whileBoth();
    this.serving.shift();
    await before.stop();
  }

  /** The origin of the next process in turn. */
  next(): string {
    this.#turn += 1;
    return this.serving[this.#turn % this.serving.length]?.origin ?? "";
  }
}

const isPossible = backends.includes("PostgreSQL") && findRedis() !== undefined && findNats() !== undefined;

describe.runIf(isPossible)("under load", () => {
  const cleanup = suiteCleanup();
  const folder = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  const keys = join(folder, "keys");
  let fakes: ProviderFakes;
  let redis: Redis;
  let auth: Service;
  let push: Service;
  /** What callers have now. */
  const held = { internal: oldSecret, platform: oldSecret, client: oldSecret, otp: 0 };
  const [id, phone, operator, password] = [randomUUID(), newPhone(), "operator", "correct horse battery"];
  let token = "";
  let operatorToken = "";

  beforeAll(async () => {
    cleanup.defer(() => rmSync(folder, { recursive: true, force: true }));
    const database = await createMigratedDatabase();
    cleanup.defer(() => database.drop());
    fakes = await startProviderFakes();
    cleanup.defer(() => fakes.close());
    redis = await startRedis({ password: oldSecret });
    cleanup.defer(() => redis.stop());
    const users = [oldSecret, newSecret].map((one, n) => ({ user: `gatepost-${n}`, password: one }));
    const nats = await startNats({ users });
    cleanup.defer(() => nats.stop());
    const fronts = await Promise.all([0, 1, 2, 3].map(() => openFront()));
    for (const front of fronts) cleanup.defer(() => front.close());
    const [http, grpc, pushHttp, pushGrpc] = fronts;
    if (!http || !grpc || !pushHttp || !pushGrpc) throw new Error("there are four");
    await makeKey(keys);
    const common = {
      ...databaseEnvironment(database),
      DATA_DIR: folder,
      BROKER_URL: nats.url,
      BROKER_CREDENTIALS: `gatepost-0:${oldSecret}`,
      ...redis.env,
      CACHE_PASSWORD: oldSecret,
      PLATFORM_SECURITY_API_KEY: oldSecret,
    };
    const issuer = `${http.origin}/api/auth`;
    const files = Object.entries(keyFiles).map(([name, file]) => [name, join(keys, file)]);
    const ofAuth = {
      ...common,
      ...Object.fromEntries(files),
      ...clients(oldSecret, 1),
      SERVICES: "auth",
      OAUTH_SERVER_ISSUER: issuer,
      INTERNAL_CLIENT_SECRET: oldSecret,
      OTP_VERIFICATION_TOKEN_PUBLIC_KEY: pems[0] ?? "",
    };
    const { fcm, apns, webpush } = fakes;
    const ofPush = {
      ...common,
      SERVICES: "push",
      IDENTITY_PROVIDER_ISSUER_URI: issuer,
      PLATFORM_SECURITY_URL: grpc.origin,
      PUSH_PROVIDERS: "fcm,apns,webpush",
      FCM_ENDPOINT: fcm.origin,
      FCM_CREDENTIALS: JSON.stringify(fcm.credentials),
      APNS_ENDPOINT: apns.origin,
      APNS_KEY: apns.credentials.privateKey,
      APNS_KEY_ID: apns.credentials.keyId,
      APNS_TEAM_ID: apns.credentials.teamId,
      APNS_TOPIC: apns.credentials.topic,
      WEBPUSH_VAPID_PRIVATE_KEY: oldVapid.privateKey,
      WEBPUSH_VAPID_PUBLIC_KEY: oldVapid.publicKey,
      WEBPUSH_SUBJECT: oldVapid.subject,
      WEBPUSH_ALLOWED_HOSTS: webpush.origin,
    };
    auth = new Service(ofAuth, http, grpc);
    push = new Service(ofPush, pushHttp, pushGrpc);
    cleanup.defer(async () => {
      await Promise.all([...auth.serving, ...push.serving].map((server) => server.stop()));
    });
    await auth.roll({}, async () => undefined);
    await push.roll({}, async () => undefined);
    await call(auth, "POST", "v1/identities", asInternal(), { id, phone });
    await call(auth, "POST", "v1/identities", asInternal(), { id: operator, phone: newPhone() });
    await call(auth, "PUT", `v1/identities/${operator}/password`, asInternal(), { password });
  });

  const asInternal = () => ({ authorization: basic("internal", held.internal) });
  const asApp = () => ({ authorization: basic("backend", held.client) });
  const bearer = (one: string) => ({ authorization: `Bearer ${one}` });

  /** @param body a form, or else JSON @throws where the status is no success */
  async function call(
    service: Service,
    method: string,
    path: string,
    headers: Record<string, string>,
    body?: object | URLSearchParams,
  ): Promise<{ readonly headers: Headers; readonly json: Readonly<Record<string, unknown>> }> {
    const isJson = body && !(body instanceof URLSearchParams);
    const api = service === auth ? "auth" : "push-orchestration";
    const response = await fetch(`${service.next()}/api/${api}/${path}`, {
      method,
      headers: { ...headers, ...(isJson && { "content-type": "application/json" }) },
      ...(body && { body: isJson ? JSON.stringify(body) : body }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 300)}`);
    return { headers: response.headers, json: text === "" ? {} : JSON.parse(text) };
  }

  async function grant(headers: Record<string, string>, form: Record<string, string>): Promise<string> {
    const { json } = await call(auth, "POST", "oauth2/v1/tokens", headers, new URLSearchParams(form));
    return String(json["access_token"]);
  }

  async function introspect(headers: Record<string, string>): Promise<void> {
    const form = new URLSearchParams({ token });
    const { json } = await call(auth, "POST", "oauth2/v1/introspect", headers, form);
    if (json["active"] !== true) throw new Error("a token that was issued is not active");
  }

  async function save(provider: string, device: string): Promise<void> {
    const expiration = new Date(Date.now() + 86_400_000).toISOString();
    const headers = { ...bearer(token), "barrier-user-utc-offset": "0" };
    await call(push, "POST", "v1/pushprovider/token", headers, { token: device, expiration, provider });
  }

  let devices = 0;
  /** Resolves with what was planned, once each message of it was accepted. */
  async function send(): Promise<number> {
    const wanted = devices;
    const content = { title: "Hello", message: "How are you?", utcOffsets: [0] };
    const sending = { ...bearer(operatorToken), "idempotency-key": randomUUID() };
    const { headers } = await call(push, "POST", "v1/pushprovider/push", sending, content);
    const path = `v1/pushprovider/notifications/${headers.get("notification-id")}`;
    for (;;) {
      const { json } = await call(push, "GET", path, bearer(operatorToken));
      const { state, planned, sent } = json;
      if (state !== "COMPLETED") await pause(50);
      else if (sent !== planned || Number(planned) < wanted) throw new Error(`sent: ${JSON.stringify(json)}`);
      else return Number(planned);
    }
  }

  /** What is asked all the time, by the rows of the page whose secrets it takes. */
  const load: Readonly<Record<string, () => Promise<unknown>>> = {
    INTERNAL_CLIENT_SECRET: () => call(auth, "GET", `v1/identities/${id}`, asInternal()),
    "clientSecret, RSA_PRIVATE_KEY": async () => {
      token = await grant(asApp(), { grant_type: "auth", auth_id: id });
    },
    OTP_VERIFICATION_TOKEN_PUBLIC_KEY: async () => {
      const now = Math.floor(Date.now() / 1000);
      const claims = { iss: "otp-verifier", phone_number: phone, jti: randomUUID(), iat: now, exp: now + 60 };
      const key = otpKeys[held.otp]?.privateKey;
      if (!key) throw new Error("there are two keys");
      const otp_verification_token = await new SignJWT(claims).setProtectedHeader({ alg: "ES256" }).sign(key);
      await grant(asApp(), { grant_type: "phone_otp_token", phone, otp_verification_token });
    },
    PLATFORM_SECURITY_API_KEY: () => introspect({ "x-api-key": held.platform }),
    "PLATFORM_SECURITY_API_KEY, RSA_PRIVATE_KEY at push": () =>
      call(push, "GET", "v1/pushprovider/notifications-history", bearer(token)),
    CACHE_PASSWORD: async () => {
      const form = { grant_type: "password", username: operator, password };
      operatorToken = await grant({ authorization: basic("backoffice", "backoffice-dev-secret") }, form);
    },
    "FCM_CREDENTIALS, APNS_KEY, WEBPUSH_VAPID_PRIVATE_KEY, BROKER_CREDENTIALS": send,
  };
  const requests = new Map(Object.keys(load).map((kind) => [kind, 0]));
  const failures: string[] = [];

  test("are the rows of the page, but for the first two and the last four", () => {
    const page = readFileSync(join(root, "docs/operate/rotation.md"), "utf8");
    const rows = [...page.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name).slice(2, -4);
    const drilled = Object.keys(load).flatMap((kind) => kind.match(/\b[A-Z_]{4,}\b|clientSecret/g) ?? []);
    expect([...new Set(drilled)].sort()).toEqual(rows.sort());
  });

  test("each secret is replaced, and no request fails", async () => {
    await load["clientSecret, RSA_PRIVATE_KEY"]?.();
    await load["CACHE_PASSWORD"]?.();
    await save("fcm", "device-1");
    await save("apns", "a".repeat(64));
    const oldSubscription = JSON.stringify(fakes.webpush.subscribe("old", oldVapid.publicKey));
    await save("webpush", oldSubscription);
    devices = 3;

    let isOver = false;
    const loops = Object.entries(load).map(async ([kind, once]) => {
      while (!isOver) {
        await once().catch((error) => failures.push(`${kind}: ${error}`));
        requests.set(kind, (requests.get(kind) ?? 0) + 1);
        await pause(100);
      }
    });
    /** Until each kind was asked for anew. */
    const asked = async () => {
      const before = new Map(requests);
      await waitFor(() => {
        for (const [kind, count] of requests)
          expect(count, kind).toBeGreaterThan((before.get(kind) ?? 0) + 1);
      });
    };

    try {
      // Auth takes both of each, and publishes the next key; push sends with either VAPID key.
      await makeKey(keys);
      await redis.command("ACL", "SETUSER", "default", `>${newSecret}`);
      await auth.roll(
        {
          INTERNAL_CLIENT_SECRET: both,
          PLATFORM_SECURITY_API_KEY: both,
          OTP_VERIFICATION_TOKEN_PUBLIC_KEY: pems.join(""),
          ...clients([oldSecret, newSecret], 2),
        },
        asked,
      );
      await push.roll(
        { WEBPUSH_VAPID_PRIVATE_KEY: JSON.stringify([oldVapid.privateKey, newVapid.privateKey]) },
        asked,
      );

      // Callers and the verifier use the new ones, pages subscribe with the new key; auth signs with its next one.
      Object.assign(held, { internal: newSecret, platform: newSecret, client: newSecret, otp: 1 });
      await save("webpush", JSON.stringify(fakes.webpush.subscribe("new", newVapid.publicKey)));
      devices = 4;
      await useNextKey(keys);
      const { fcm, apns } = fakes;
      const { private_key, private_key_id } = await newServiceAccount("any");
      fcm.keys.set(private_key_id, createPublicKey(private_key));
      const apnsKey = { ...newApnsCredentials(), keyId: "FAKEKEY002" };
      apns.keys.set(apnsKey.keyId, createPublicKey(apnsKey.privateKey));
      const ofBoth = { CACHE_PASSWORD: newSecret, BROKER_CREDENTIALS: `gatepost-1:${newSecret}` };
      const ofPush = {
        PLATFORM_SECURITY_API_KEY: JSON.stringify([newSecret, oldSecret]),
        FCM_CREDENTIALS: JSON.stringify({ ...fcm.credentials, private_key, private_key_id }),
        APNS_KEY: apnsKey.privateKey,
        APNS_KEY_ID: apnsKey.keyId,
      };
      await Promise.all([auth.roll(ofBoth, asked), push.roll({ ...ofBoth, ...ofPush }, asked)]);

      // The old ones end.
      fcm.keys.delete(fcm.credentials.private_key_id);
      fcm.expireAccessTokens();
      apns.keys.delete(apns.credentials.keyId);
      await redis.command("ACL", "SETUSER", "default", `<${oldSecret}`);
      await retireKeys(keys);
      // The last browser has been back, and its old subscription is removed.
      devices = 3;
      await asked();
      await call(push, "DELETE", "v1/pushprovider/token", bearer(token), { token: oldSubscription });
      const ended = {
        INTERNAL_CLIENT_SECRET: newSecret,
        PLATFORM_SECURITY_API_KEY: newSecret,
        OTP_VERIFICATION_TOKEN_PUBLIC_KEY: pems[1] ?? "",
        ...clients(newSecret, 3),
      };
      const endedOfPush = {
        PLATFORM_SECURITY_API_KEY: newSecret,
        WEBPUSH_VAPID_PRIVATE_KEY: newVapid.privateKey,
        WEBPUSH_VAPID_PUBLIC_KEY: newVapid.publicKey,
      };
      await Promise.all([auth.roll(ended, asked), push.roll(endedOfPush, asked)]);
      await asked();
    } finally {
      isOver = true;
      await Promise.all(loops);
      process.stdout.write(`${JSON.stringify(Object.fromEntries(requests))} ${failures.length} failed\n`);
    }
    expect([...new Set(failures)]).toEqual([]);

    const refused = async (headers: Record<string, string>) =>
      expect(introspect(headers)).rejects.toThrow("401");
    await refused({ authorization: basic("internal", oldSecret) });
    await refused({ "x-api-key": oldSecret });
    for (const { management } of auth.serving)
      expect(valuesOf(await scrape(management), "gatepost_cache_usable")).toEqual([1]);
    // Through the broker: the devices of a user who is gone are removed.
    await call(auth, "DELETE", `v1/identities/${id}`, asInternal());
    devices = 0;
    await waitFor(async () => expect(await send()).toBe(0));
  });
});
