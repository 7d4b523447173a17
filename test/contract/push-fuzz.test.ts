/** Requests to the push API, made from the schemas of openapi/push-orchestration.yaml. */
import fc from "fast-check";
import { beforeAll } from "vitest";
import { contractCall } from "../support/contract-api.ts";
import { readContract } from "../support/contract-check.ts";
import { type PushServer, startPushServer } from "../support/push-server.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { fuzz } from "./fuzz.ts";

const contract = readContract("push-orchestration");
let server: PushServer;
let call: ReturnType<typeof contractCall>;
let notificationId: string;
let tokens: { user: string; backoffice: string };
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startPushServer("PGlite", { env: { PUSH_MAX_SAVES_PER_MINUTE: "1000000" } });
  cleanup.defer(() => server.stop());
  tokens = {
    user: `Bearer ${await server.userToken()}`,
    backoffice: `Bearer ${await server.backofficeToken()}`,
  };
  call = contractCall(server.origin, contract);
  const json = { title: "Hello", message: "How are you?", utcOffsets: [0] };
  const { headers } = await call("sendPushNotification", { as: tokens.backoffice, json });
  notificationId = headers.get("notification-id") ?? "";
});

const ofUsers = ["savePushToken", "deletePushToken", "getNotificationsHistory", "getNotificationsSummary"];

/** What may be refused although its form is right: what it says does not hold. */
const ofContent: Record<string, RegExp> = {
  "400":
    /is longer than (?:4000|64) bytes in UTF-8|is longer than 1000 bytes in a URL|"\/body\/expiration","message":"is not a date-time|"\/header\/barrier-user-utc-offset","message":"is neither|must be a moment in the future|is not the tag of a language|"\/body\/provider","message":"must be one of|"\/body\/token"/,
  "404": /notification_not_found|dead_letter_not_found|does not use this push provider/,
  "409": /idempotency_key_reused|notification_finished/,
};

/** What is refused of a notification to anyone although its form is right. */
const ofNotifications =
  /names nobody|unless the notification is silent|must be absent|is not a language tag|has no text among|is required where|is the same language|is not a time zone|is not a UTC offset|is named before|must have at least 1 member|neither an https URL|have a name of 1 to 128|keep for themselves|holds \{\{/;
const toAnyone = ["createNotification", "previewNotification"];

const moments = fc.date({
  min: new Date("2100-01-01"),
  max: new Date("9999-12-30"),
  noInvalidDate: true,
});

fuzz({
  document: "push-orchestration",
  call: (...request) => call(...request),
  credentials({ id, security }) {
    if (security.length === 0) return {};
    return { as: ofUsers.includes(id) ? tokens.user : tokens.backoffice };
  },
  sharp: {
    id: fc.constant(undefined).map(() => notificationId),
    expiration: moments.map((date) => date.toISOString()),
    provider: fc.constant("outbox"),
    language: fc.constantFrom("de-AT", "zh_hant_tw", "iw"),
    audience: fc.constantFrom<unknown[]>(
      { users: ["a", "b"], except: [{ platforms: ["web"], utcOffsets: null }] },
      {
        anyOf: [{ languages: ["de"], timeZones: ["europe/berlin"] }, { utcOffsets: [3, 330] }],
        exceptUsers: ["a"],
      },
      { everybody: true, users: null },
    ),
    content: fc.constantFrom<unknown[]>(
      {
        texts: { de: { title: "t", message: "m" }, "en-GB": { title: "t", message: "m" } },
        defaultLanguage: "de",
      },
      {
        texts: { en: { title: "t", message: "m" } },
        link: "myapp://a",
        data: { a: "" },
        badge: 0,
        tooLong: "refuse",
      },
      { silent: true, data: { a: "b" } },
    ),
    "barrier-user-utc-offset": fc.constantFrom(
      "Z",
      "3",
      "-12",
      "330",
      "+05:30",
      "-0930",
      "UTC+3",
      "Europe/Berlin",
    ),
    "Idempotency-Key": fc.constantFrom("a", "b"),
  },
  known: () => ({ id: notificationId }),
  isOfContent: ({ id }, { status, text }) =>
    ofContent[status]?.test(text) === true ||
    (status === 400 && toAnyone.includes(id) && ofNotifications.test(text)),
});
