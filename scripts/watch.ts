/**
 * `npm run watch -- <id>`: follows a notification until nothing of it is left: a bar with rate and estimate, and a line
 * for each provider that is paused, with its reason, after which it is tried again. While nothing goes out, what waits
 * for another try. At the end, why messages failed.
 *
 * `GATEPOST_URL` names a server elsewhere, `BACKOFFICE_TOKEN` an access token of the back office. In development mode
 * it signs in by itself.
 */
import { randomInt } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { Code, ConnectError, createClient as createRpcClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import createClient from "openapi-fetch";
import type { paths as AuthPaths } from "../gen/openapi/auth.ts";
import type { paths as PushPaths } from "../gen/openapi/push-orchestration.ts";
import {
  DeliveryService,
  type NotificationProgress,
  NotificationState,
} from "../gen/proto/push/v1/delivery_pb.ts";
import { developmentClients, developmentInternalClient } from "../src/auth/client-settings.ts";
import { readArguments } from "../src/command.ts";
import { say, usageIn } from "./command.ts";
import { readAddresses } from "./demo/server.ts";
import { progressBar } from "./progress-bar.ts";

/** Milliseconds between two looks at the providers. */
const lookMs = 2_000;
/** Milliseconds over which the rate is measured. */
const rateMs = 10_000;
/** Milliseconds without a message after which those that are left are said to wait. */
const stillMs = 4_000;

/** The operator that this program signs in as, in development mode alone. */
const operator = { id: "watch-operator", password: "correct horse battery" };

interface Credentials {
  readonly clientId: string;
  readonly clientSecret: string;
}

const basic = ({ clientId, clientSecret }: Credentials) =>
  `Basic ${Buffer.from(`${clientId}:${clientSecret}`).toString("base64")}`;

/** An access token by the credentials of development mode; undefined where the server does not know them. */
async function signIn(http: string): Promise<string | undefined> {
  const auth = createClient<AuthPaths>({ baseUrl: `${http}/api/auth` });
  const headers = { authorization: basic(developmentInternalClient) };
  const [, backoffice] = developmentClients;
  const { id, password } = operator;
  const phone = `+1203555${String(randomInt(10_000)).padStart(4, "0")}`;
  const created = await auth.POST("/v1/identities", { headers, body: { id, phone } });
  if (created.response.ok) {
    await auth.PUT("/v1/identities/{id}/password", { headers, params: { path: { id } }, body: { password } });
  }
  const issued = await auth.POST("/oauth2/v1/tokens", {
    headers: { authorization: basic(backoffice), "content-type": "application/x-www-form-urlencoded" },
    body: { grant_type: "password", username: id, password },
  });
  if (issued.response.status >= 500) throw new ConnectError("auth is not ready", Code.Unavailable);
  return issued.data?.access_token;
}

function nameOf(state: NotificationState): string {
  return Object.entries(NotificationState).find(([, value]) => value === state)?.[0] ?? String(state);
}

/** A few words on how fast it goes, by what was done lately. */
function createPace(): (done: number, remaining: number) => string {
  const seen: { readonly at: number; readonly done: number }[] = [];
  return (done, remaining) => {
    const now = performance.now();
    seen.push({ at: now, done });
    while (seen.length > 2 && now - (seen[0]?.at ?? now) > rateMs) seen.shift();
    const first = seen[0] ?? { at: now, done };
    const rate = ((done - first.done) * 1000) / Math.max(1, now - first.at);
    if (rate <= 0 || remaining === 0) return "";
    return `, ${Math.round(rate)} a second, about ${Math.ceil(remaining / rate)} s left`;
  };
}

type Push = ReturnType<typeof createClient<PushPaths>>;

/** Says of each provider that is not open what it is, once for each state. */
function createLook(push: Push, headers: { readonly authorization: string }): () => Promise<string[]> {
  let known = new Set<string>();
  return async () => {
    const { data } = await push.GET("/v1/pushprovider/providers", { headers });
    const states = (data?.content ?? []).flatMap(({ provider, origins, ...state }) => [
      { name: provider, ...state },
      ...(origins ?? []).map(({ origin, ...of }) => ({ name: `${provider}, ${origin}`, ...of })),
    ]);
    const lines = states
      .filter(({ state }) => state !== "OPEN")
      .map(({ name, state, reason, pausedUntil }) => {
        const until = pausedUntil === null ? "now" : `at ${pausedUntil}`;
        return `${name} is ${state}: ${reason ?? "no reason is known"}. What waits for it is tried again ${until}.`;
      });
    const fresh = lines.filter((line) => !known.has(line));
    known = new Set(lines);
    return fresh;
  };
}

/** What waits for another try, by provider. */
function waitingIn({ breakdown }: NotificationProgress): string {
  const byProvider = new Map<string, number>();
  for (const share of breakdown) {
    if (share.remaining > 0) {
      byProvider.set(share.provider, (byProvider.get(share.provider) ?? 0) + share.remaining);
    }
  }
  const parts = [...byProvider].map(([provider, count]) => `${provider} ${count}`);
  return `Nothing has gone out for ${stillMs / 1000} s. Devices that wait for another try: ${parts.join(", ")}.`;
}

/** Whether the server went away, which a restart does. `fetch` says so by a TypeError with a cause. */
function isAway(thrown: unknown): boolean {
  if (thrown instanceof TypeError) return thrown.cause !== undefined;
  const { code } = ConnectError.from(thrown);
  return code === Code.Unavailable || code === Code.Aborted;
}

/**
 * Shows the notification until it ends.
 * @param responds called at each message of the server
 * @returns the last progress; undefined if the server went away
 */
async function follow(
  http: string,
  notificationId: string,
  token: string,
  responds: () => void,
): Promise<NotificationProgress | undefined> {
  const headers = { authorization: `Bearer ${token}` };
  const push = createClient<PushPaths>({ baseUrl: `${http}/api/push-orchestration` });
  const delivery = createRpcClient(
    DeliveryService,
    createConnectTransport({ baseUrl: http, httpVersion: "1.1" }),
  );
  const bar = progressBar("");
  const pace = createPace();
  const look = createLook(push, headers);
  let last: NotificationProgress | undefined;
  let movedAt = performance.now();
  const looking = setInterval(async () => {
    const lines = await look().catch((): string[] => []);
    const isGoing = last?.state === NotificationState.PLANNING || last?.state === NotificationState.SENDING;
    if (last && isGoing && last.remaining > 0 && performance.now() - movedAt >= stillMs) {
      lines.push(waitingIn(last));
      movedAt = Number.POSITIVE_INFINITY;
    }
    if (lines.length > 0) bar.end();
    for (const line of lines) say(line);
  }, lookMs);
  try {
    for await (const { progress } of delivery.watchProgress({ notificationId }, { headers })) {
      responds();
      if (!progress) continue;
      last = progress;
      movedAt = performance.now();
      const { planned, remaining, state } = progress;
      const done = planned - remaining;
      bar.show(done, planned, `${done} of ${planned} devices, ${nameOf(state)}${pace(done, remaining)}`);
    }
  } finally {
    clearInterval(looking);
    bar.end();
  }
  return last;
}

/** What became of it: the notice, the reasons of failures, and the dead letters. */
async function conclude(http: string, progress: NotificationProgress, token: string): Promise<void> {
  const { id, state, recipients, planned, sent, failed, dropped, deadLettered, notice } = progress;
  const headers = { authorization: `Bearer ${token}` };
  say(
    `${nameOf(state)}: users: ${recipients}, devices: ${planned}; ${sent} sent, ${failed} failed, ${dropped} dropped, ${deadLettered} in dead letters.`,
  );
  if (notice !== undefined) say(notice);
  const push = createClient<PushPaths>({ baseUrl: `${http}/api/push-orchestration` });
  const params = { path: { id } };
  const { data } = await push.GET("/v1/pushprovider/notifications/{id}/failures", { headers, params });
  for (const { provider, reason, devices } of data?.content ?? [])
    say(`  failed: ${provider} ${reason}, devices: ${devices}`);
  if (deadLettered > 0) say("  Dead letters wait for a replay: docs/push/operate.md.");
}

/**
 * Follows it, over restarts of the server and, where it signs in by itself, beyond the life of its token.
 * @returns why it could not; undefined if it has ended
 */
async function watch(http: string, id: string): Promise<string | undefined> {
  const own = process.env["BACKOFFICE_TOKEN"];
  let isSaidAway = false;
  const responds = () => {
    isSaidAway = false;
  };
  for (;;) {
    try {
      const token = own || (await signIn(http));
      if (token === undefined) {
        return `No access token of the back office: is the server at ${http} in development mode? Else set BACKOFFICE_TOKEN.`;
      }
      const last = await follow(http, id, token, responds);
      if (last) await conclude(http, last, token);
      return undefined;
    } catch (thrown) {
      const { code, rawMessage } = ConnectError.from(thrown);
      if (isAway(thrown)) {
        if (!isSaidAway) {
          say(`${http} does not respond; GATEPOST_URL names another server. Watching goes on when it does.`);
        }
        isSaidAway = true;
      } else if (own || code !== Code.Unauthenticated) return `${Code[code]}: ${rawMessage}`;
      await setTimeout(lookMs);
    }
  }
}

const {
  positionals: [id = ""],
} = readArguments({ usage: usageIn(import.meta.filename), options: {}, operands: [1, 1] });
const addresses = readAddresses(process.env);
const problem =
  id === "" || !addresses
    ? "npm run watch -- <id>, where the id is what Notification-Id said. GATEPOST_URL may name another server, and BACKOFFICE_TOKEN is needed outside development mode."
    : await watch(addresses.http, id);
if (problem !== undefined) {
  process.stderr.write(`${problem}\n`);
  process.exitCode = 1;
}
