/** The third part of the demo: a notification on its way to a user's two devices, and what the user sees of it. */
import { randomBytes, randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import type { components } from "../../gen/openapi/push-orchestration.ts";
import { type NotificationProgress, NotificationState } from "../../gen/proto/push/v1/delivery_pb.ts";
import { progressBar } from "../progress-bar.ts";
import { bearer, form } from "./calls.ts";
import { bodyOf, failureOf, Mismatch, statusIs } from "./mismatch.ts";
import type { Stage, TokenPair } from "./stage.ts";

type HistoryPage = components["schemas"]["HistoryPage"];

/** Two time zones, in minutes east of UTC, in which other demos that run now have no devices. */
const zones = [((process.pid * 2) % 52) * 15 + 15, ((process.pid * 2) % 52) * 15 + 30] as const;
const sent = {
  title: "Your order is on its way",
  message: "It will be with you tomorrow, between 9 and 12.",
};

/** @param app the user's token pair in the app */
export async function notify(stage: Stage, app: TokenPair): Promise<void> {
  const user = bearer(app.access_token);
  await registerDevices(stage, user);
  const operator = await signInOperator(stage);
  const id = await send(stage, user, operator);
  await watch(stage, operator, id);
  await read(stage, user, id);
}

async function registerDevices({ calls, user, step }: Stage, authorization: string): Promise<void> {
  const expiration = new Date(Date.now() + 30 * 86_400_000).toISOString();
  for (const [index, device] of ["phone", "tablet"].entries()) {
    const offset = `${zones[index]}`;
    await step(
      `The app registers the user's ${device}, whose clock is ${offset} minutes ahead of UTC`,
      async () => {
        const headers = { authorization, "barrier-user-utc-offset": offset };
        const body = { token: `demo-${device}-of-${user.id}`, expiration };
        statusIs(204, await calls.push.POST("/v1/pushprovider/token", { headers, body }));
      },
    );
  }
}

/** @returns the Authorization header of the operator */
async function signInOperator({ calls, operator, credentials, step }: Stage): Promise<string> {
  const password = `battery staple ${randomBytes(8).toString("base64url")}`;
  const headers = { authorization: credentials.internal };
  await step("Somebody in the back office needs an identity and a password", async () => {
    bodyOf(200, await calls.auth.POST("/v1/identities", { headers, body: operator }));
    const params = { path: { id: operator.id } };
    statusIs(
      204,
      await calls.auth.PUT("/v1/identities/{id}/password", { headers, params, body: { password } }),
    );
  });
  return step("They sign in, in the back-office application", async () => {
    const body = { grant_type: "password", username: operator.id, password };
    const signIn = { headers: { authorization: credentials.backoffice, ...form }, body };
    return bearer(bodyOf(200, await calls.auth.POST("/oauth2/v1/tokens", signIn)).access_token);
  });
}

/** @returns the notification's id */
async function send({ calls, step }: Stage, user: string, operator: string): Promise<string> {
  const body = { ...sent, utcOffsets: [...zones] };
  await step("May the user's own application send to everybody?", async (check) => {
    const headers = { authorization: user };
    const problem = failureOf(403, await calls.push.POST("/v1/pushprovider/push", { headers, body }));
    check("it may not", problem.code, "forbidden");
  });

  const key = randomUUID();
  const headers = { authorization: operator, "Idempotency-Key": key };
  const once = async () => {
    const result = await calls.push.POST("/v1/pushprovider/push", { headers, body });
    statusIs(204, result);
    return result.response.headers.get("notification-id") ?? "";
  };
  const id = await step("The back office sends a notification to both zones", once);
  await step(
    "It sends again with the same Idempotency-Key, as the response might have got lost",
    async (check) => {
      check("it is the same notification, sent once", await once(), id);
    },
  );
  return id;
}

async function watch({ calls, step }: Stage, operator: string, id: string): Promise<void> {
  await step(
    "Watch it go out",
    async (check) => {
      const bar = progressBar("    sent");
      let last: NotificationProgress | undefined;
      for await (const progress of calls.watchProgress(id, operator)) {
        last = progress;
        bar.show(progress.sent, progress.planned, `${progress.sent} of ${progress.planned} devices`);
      }
      bar.end();
      if (!last) throw new Mismatch("progress", "none");
      const { state, recipients, sent, failed, dropped, remaining } = last;
      check(
        "two devices of one user, both sent to; nothing failed, nothing is left",
        { isCompleted: state === NotificationState.COMPLETED, recipients, sent, failed, dropped, remaining },
        { isCompleted: true, recipients: 1, sent: 2, failed: 0, dropped: 0, remaining: 0 },
      );
    },
    "In development nothing leaves this machine: what would have been sent is in outbox.ndjson, in the data directory.",
  );
}

async function read(stage: Stage, authorization: string, id: string): Promise<void> {
  const { calls, user, step } = stage;
  const headers = { authorization };
  const history = async (markViewed: boolean): Promise<HistoryPage> => {
    const params = { query: { page: 0, size: 20, markViewed } };
    return bodyOf(200, await calls.push.GET("/v1/pushprovider/notifications-history", { headers, params }));
  };
  const viewed = async () =>
    bodyOf(200, await calls.push.GET("/v1/pushprovider/notifications-summary", { headers })).viewed;

  await step("Has the user unread notifications?", async (check) => {
    check("yes: not all are viewed", await viewed(), false);
  });
  await step("The app opens the history, and marks what it shows as viewed", async (check) => {
    const { content, totalElements } = await history(true);
    check(
      "one entry for two devices, shown as it was: unread",
      [content.map(withoutTime), totalElements],
      [[{ id, userId: user.id, viewed: false, notification: { ...sent, image: null } }], 1],
    );
  });
  await step("Open it again", async (check) => {
    check("now it is viewed", (await history(false)).content[0]?.viewed, true);
  });
  await step("Has the user unread notifications now?", async (check) => {
    check("no", await viewed(), true);
  });
}

function withoutTime({ sendAt: _when, ...entry }: HistoryPage["content"][number]) {
  return entry;
}

/** After the identity's deletion: a new user with the same id must not find data of the previous one. */
export async function findNothing(stage: Stage): Promise<void> {
  const { calls, user, credentials, step } = stage;
  const internal = { authorization: credentials.internal };
  await step(
    "What is left of the user? Create the identity anew, and look into its history",
    async (check) => {
      bodyOf(200, await calls.auth.POST("/v1/identities", { headers: internal, body: user }));
      const body = { grant_type: "auth", auth_id: user.id };
      const signIn = { headers: { authorization: credentials.backend, ...form }, body };
      const { access_token } = bodyOf(200, await calls.auth.POST("/oauth2/v1/tokens", signIn));
      const headers = { authorization: bearer(access_token) };
      let left = Number.NaN;
      for (let attempt = 0; attempt < 40 && left !== 0; attempt += 1) {
        if (attempt > 0) await setTimeout(250);
        const path = "/v1/pushprovider/notifications-history";
        left = bodyOf(200, await calls.push.GET(path, { headers })).totalElements;
      }
      check("nothing: devices and history went with the identity", left, 0);
    },
    "The push service learns of the deletion by an event, within a second or so.",
  );
  await step("Delete both identities again", async () => {
    for (const { id } of [user, stage.operator]) {
      const params = { path: { id } };
      statusIs(204, await calls.auth.DELETE("/v1/identities/{id}", { headers: internal, params }));
    }
  });
}
