/**
 * The walk through both services that every generated client takes. A client is adapted to `Gatepost` without a cast,
 * so its generated types must fit; the walk looks at what each call returns.
 */
import { deepEqual, equal, notEqual, ok } from "node:assert/strict";
import { randomInt, randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";

/** A registered client of the auth service, for HTTP Basic. */
export interface Credentials {
  readonly username: string;
  readonly password: string;
}

export type TokenRequest =
  | { grant_type: "auth"; auth_id: string }
  | { grant_type: "password"; username: string; password: string }
  | { grant_type: "refresh_token"; refresh_token: string };

export interface TokenPair {
  readonly access_token: string;
  readonly refresh_token: string;
  readonly token_type: string;
  readonly expires_in: number;
}

/** A notification to users, with data. */
export interface NotificationCreation {
  audience: { users: string[] };
  content: {
    texts: Record<string, { title: string; message: string }>;
    link: string;
    data: Record<string, string>;
  };
  delivery: { ttlSeconds: number };
}

export interface Entry {
  readonly viewed: boolean;
  readonly notification: { readonly title: string; readonly message: string; readonly image: string | null };
  readonly link?: string | undefined;
  readonly data?: Readonly<Record<string, string>> | undefined;
  readonly sendAt: string;
}

/** What the walk needs of a client. Every function rejects if the response is another than the one that it names. */
export interface Gatepost {
  createIdentity(identity: { id: string; phone: string; email: string }): Promise<{
    readonly id: string;
    readonly phone: string;
    readonly authenticationTypes: readonly string[];
  }>;
  /** Creates what exists already. @returns the `code` of the problem */
  createAgain(identity: { id: string; phone: string }): Promise<string>;
  setPassword(id: string, password: string): Promise<void>;
  generateTokens(client: Credentials, request: TokenRequest): Promise<TokenPair>;
  introspect(token: string): Promise<{
    readonly active: boolean;
    readonly sub?: string | undefined;
    readonly clientId?: string | undefined;
  }>;
  /** @returns the confirmation */
  revoke(client: Credentials, token: string): Promise<string>;
  saveDevice(
    accessToken: string,
    device: { token: string; expiration: string },
    offset: string,
  ): Promise<void>;
  deleteDevice(accessToken: string, token: string): Promise<void>;
  /** @returns `Notification-Id` */
  send(
    accessToken: string,
    idempotencyKey: string,
    notification: { title: string; message: string; utcOffsets: number[] },
  ): Promise<string>;
  /** @returns the id and the warnings */
  create(
    accessToken: string,
    idempotencyKey: string,
    notification: NotificationCreation,
  ): Promise<{ readonly id: string; readonly warnings: readonly unknown[] }>;
  progress(accessToken: string, id: string): Promise<{ readonly state: string; readonly sent: number }>;
  history(
    accessToken: string,
    markViewed: boolean,
  ): Promise<{ readonly content: readonly Entry[]; readonly totalElements: number }>;
  /** @returns whether all is viewed */
  summary(accessToken: string): Promise<boolean>;
}

/** A variable of the environment, which `npm run test:clients` sets. */
export function environment(name: string): string {
  const value = process.env[name];
  ok(value, `${name} is not set`);
  return value;
}

export const authUrl = environment("GATEPOST_AUTH_URL");
export const pushUrl = environment("GATEPOST_PUSH_URL");
export const internal = { username: "internal", password: environment("GATEPOST_INTERNAL_SECRET") };
/** A resource server's. */
export const api = { username: "api", password: environment("GATEPOST_API_SECRET") };
const backend = { username: "backend", password: environment("GATEPOST_BACKEND_SECRET") };
const backoffice = { username: "backoffice", password: environment("GATEPOST_BACKOFFICE_SECRET") };

/** The value of an Authorization header. */
export function basic({ username, password }: Credentials): string {
  return `Basic ${btoa(`${username}:${password}`)}`;
}

/** What a response has: its data if its status is the expected one. @throws with the error that was answered instead */
export function expectData<T>(data: T | undefined, error: unknown): T {
  if (data === undefined) throw new Error(`refused: ${JSON.stringify(error)}`);
  return data;
}

/** @throws with the body if the status is another */
export function expectStatus(status: number, expected: number, body?: unknown): void {
  equal(status, expected, `answered with ${status}: ${JSON.stringify(body)}`);
}

/** Creates a user and an operator, uses up a token, and sends the user a notification. */
export async function walk(gatepost: Gatepost): Promise<void> {
  const user = newIdentity();
  const created = await gatepost.createIdentity(user);
  equal(created.id, user.id);
  equal(created.phone, user.phone);
  deepEqual(created.authenticationTypes, ["PHONE_OTP"]);
  equal(await gatepost.createAgain(user), "identity_id_taken");

  await useTokens(gatepost, user.id);
  await notify(gatepost, user.id);
}

/** create → token → introspect → refresh → revoke: each step is seen by introspection. */
async function useTokens(gatepost: Gatepost, id: string): Promise<void> {
  const first = await gatepost.generateTokens(backend, { grant_type: "auth", auth_id: id });
  equal(first.token_type, "Bearer");
  ok(first.expires_in > 0);
  const active = await gatepost.introspect(first.access_token);
  equal(active.active, true);
  equal(active.sub, id);
  equal(active.clientId, backend.username);

  const refresh = { grant_type: "refresh_token", refresh_token: first.refresh_token } as const;
  const second = await gatepost.generateTokens(backend, refresh);
  notEqual(second.refresh_token, first.refresh_token);
  equal((await gatepost.introspect(second.access_token)).active, true);

  ok((await gatepost.revoke(backend, second.refresh_token)).length > 0);
  for (const { access_token } of [first, second]) {
    const inactive = await gatepost.introspect(access_token);
    equal(inactive.active, false);
    ok(!inactive.sub, "an inactive token names nobody");
  }
}

/** device → send → history */
async function notify(gatepost: Gatepost, id: string): Promise<void> {
  const { access_token } = await gatepost.generateTokens(backend, { grant_type: "auth", auth_id: id });
  const device = { token: `device-${id}`, expiration: "2035-01-20T12:00:00Z" };
  await gatepost.saveDevice(access_token, device, "+05:45");
  equal(await gatepost.summary(access_token), true);

  const operator = await signInOperator(gatepost);
  const notification = { title: `Hello ${id}`, message: "How are you?", utcOffsets: [345] };
  const key = randomUUID();
  const notificationId = await gatepost.send(operator, key, notification);
  equal(await gatepost.send(operator, key, notification), notificationId);
  ok((await completed(() => gatepost.progress(operator, notificationId))).sent >= 1);

  equal(await gatepost.summary(access_token), false);
  const page = await gatepost.history(access_token, true);
  equal(page.totalElements, 1);
  const [entry] = page.content;
  ok(entry);
  deepEqual(entry.notification, { title: notification.title, message: notification.message, image: null });
  equal(entry.viewed, false);
  ok(Math.abs(Date.now() - Date.parse(entry.sendAt)) < 600_000);
  equal((await gatepost.history(access_token, false)).content[0]?.viewed, true);
  equal(await gatepost.summary(access_token), true);

  await notifyByName(gatepost, operator, id, access_token);
  await gatepost.deleteDevice(access_token, device.token);
}

/** Sends to one user, by id, with data. */
async function notifyByName(gatepost: Gatepost, operator: string, id: string, token: string): Promise<void> {
  const text = { title: "On its way", message: "It comes tomorrow." };
  const extras = { link: "https://shop.example.com/orders/4711", data: { orderId: "4711" } };
  const notification = {
    audience: { users: [id] },
    content: { texts: { en: text }, ...extras },
    delivery: { ttlSeconds: 3600 },
  };
  const key = randomUUID();
  const created = await gatepost.create(operator, key, notification);
  deepEqual(created.warnings, []);
  equal((await gatepost.create(operator, key, notification)).id, created.id);
  equal((await completed(() => gatepost.progress(operator, created.id))).sent, 1);
  const { totalElements, content } = await gatepost.history(token, true);
  equal(totalElements, 2);
  const entry = content.find((one) => one.notification.title === text.title);
  deepEqual(entry?.notification, { ...text, image: null });
  deepEqual({ link: entry?.link, data: entry?.data }, extras);
}

async function signInOperator(gatepost: Gatepost): Promise<string> {
  const operator = newIdentity();
  const password = `correct horse ${operator.id}`;
  await gatepost.createIdentity(operator);
  await gatepost.setPassword(operator.id, password);
  const request = { grant_type: "password", username: operator.id, password } as const;
  return (await gatepost.generateTokens(backoffice, request)).access_token;
}

function newIdentity() {
  const id = `u-${randomUUID()}`;
  return { id, phone: `+1202${randomInt(2_000_000, 10_000_000)}`, email: `${id}@example.com` };
}

/** Asks until the notification has gone out. */
async function completed<P extends { readonly state: string }>(progress: () => Promise<P>): Promise<P> {
  const deadline = Date.now() + 60_000;
  for (;;) {
    const now = await progress();
    if (now.state === "COMPLETED") return now;
    ok(Date.now() < deadline, `the notification is still ${now.state}`);
    await setTimeout(100);
  }
}
