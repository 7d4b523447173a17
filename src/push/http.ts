/** The operations of openapi/push-orchestration.yaml: decode, authorise, one call, encode. */
import type { components, operations } from "../../gen/openapi/push-orchestration.ts";
import { type InputError, invalidInput } from "../platform/base/errors.ts";
import { type Binding, type BoundContract, bindContract } from "../platform/openapi/bind.ts";
import type { ContractDocument } from "../platform/openapi/document.ts";
import {
  type Handlers,
  nothingElse,
  type Rules,
  type SecurityHandler,
  type Stated,
} from "../platform/openapi/handlers.ts";
import type { Callers } from "./callers/callers.ts";
import { acceptedLanguages } from "./content/languages.ts";
import type { ProviderControl } from "./delivery/provider-control.ts";
import { readDateTime } from "./devices/date-time.ts";
import type { Devices } from "./devices/devices.ts";
import { minutesOf, readUtcOffset } from "./devices/utc-offset.ts";
import { type History, largestPage, type PageRequest } from "./history/history.ts";
import type { Notifications } from "./notifications/notifications.ts";
import { checkText, type Report, readImage } from "./notifications/read-content.ts";
import type { Sending } from "./notifications/sending.ts";

type Schemas = components["schemas"];

interface Dependencies {
  readonly callers: Omit<Callers, "close">;
  readonly devices: Devices;
  readonly history: History;
  readonly notifications: Notifications;
  readonly providers: ProviderControl;
  readonly sending: Sending;
}

/** The caller: its OAuth client, and for the users' application the user. */
interface Caller {
  readonly clientId: string;
  readonly userId?: string;
  readonly authorizationId?: string | undefined;
}

/** Since when a deletion without a body is deprecated: 22 November 2026 (RFC 9745 section 2). */
const deletionWithoutBody = "@1795305600";

/** The routes of the document, bound to their handlers. */
export function pushHttp(
  dependencies: Dependencies,
  binding: Pick<Binding<operations, Caller>, "document" | "logger" | "observer" | "validateResponses">,
): BoundContract {
  return bindContract<operations, Caller>({
    ...binding,
    service: "push",
    handlers: pushHandlers(dependencies, binding.document),
    security: pushSecurity(dependencies.callers),
    rules: sendingRules(dependencies.sending),
  });
}

/** What bodies of sends violate beside their schemas. */
export function sendingRules({ problems }: Sending): Rules<operations> {
  return { createNotification: problems, previewNotification: problems };
}

/** The security schemes of the document. */
function pushSecurity(callers: Dependencies["callers"]): Record<string, SecurityHandler<Caller>> {
  return {
    UserApplication: ({ header }) => callers.user(header("authorization")),
    BackofficeApplication: ({ header }) => callers.backoffice(header("authorization")),
  };
}

function pushHandlers(
  { devices, history, notifications, providers, sending }: Dependencies,
  { basePath }: Pick<ContractDocument, "basePath">,
): Handlers<operations, Caller> {
  return {
    async savePushToken({ body }, { caller, header }) {
      const { token, expiration, provider, language, platform, ...rest } = body;
      nothingElse(rest);
      const utcOffset = offsetOfHeader(header("barrier-user-utc-offset"));
      const authorizationId = caller?.authorizationId;
      const device = {
        ...{ token, expiration: instantOf(expiration), utcOffset },
        ...{ ...(provider && { provider }), ...(language && { language }), ...(platform && { platform }) },
      };
      await devices.save(userOf(caller), { ...device, authorizationId });
      return { status: 204 };
    },
    async deletePushToken({ body }, { caller, context: { requestId } }) {
      const userId = userOf(caller);
      const origin = { requestId, caller: clientOf(caller) };
      if (!body) {
        await devices.removeAll(userId, origin);
        return { status: 204, headers: { Deprecation: deletionWithoutBody } };
      }
      const { token, all, expiration: _notNeeded, ...rest } = body;
      nothingElse(rest);
      await (all === true
        ? devices.removeAll(userId, origin)
        : devices.remove(userId, tokenToDelete(token), origin));
      return { status: 204, headers: {} };
    },
    async startTestNotifications() {
      await notifications.startTestRun();
      return { status: 202 };
    },
    async sendPushNotification({ body: { title, message, image, utcOffsets, ...rest } }, { caller, header }) {
      nothingElse(rest);
      const notification = notificationOf({ title, message, image, utcOffsets });
      const key = header("idempotency-key");
      const { notificationId } = await notifications.accept(clientOf(caller), notification, key);
      return { status: 204, headers: { "Notification-Id": notificationId } };
    },
    async createNotification({ body: { audience, content, delivery, ...rest } }, { caller, header }) {
      nothingElse(rest);
      const key = header("idempotency-key");
      const created = await sending.create(clientOf(caller), { audience, content, delivery }, key);
      const headers = {
        "Notification-Id": created.id,
        Location: `${basePath}/v1/pushprovider/notifications/${created.id}`,
      };
      return { status: 201, headers, body: created };
    },
    async previewNotification({ body: { audience, content, delivery, ...rest } }) {
      nothingElse(rest);
      return { status: 200, body: await sending.preview({ audience, content, delivery }) };
    },
    async listRecipients({ path: { id }, query: { page, size, ...rest } }) {
      nothingElse(rest);
      return { status: 200, body: await sending.recipients(id.toLowerCase(), pageOf({ page, size })) };
    },
    async getNotificationsHistory({ query }, { caller, header, method }) {
      const { markViewed = false, page, size, sort, ...rest } = query;
      nothingElse(rest);
      // A HEAD request does not show the entries, so it must not mark them as viewed.
      const marksViewed = markViewed && method !== "HEAD";
      const request = pageOf({ page, size, sort });
      const languages = acceptedLanguages(header("accept-language") ?? "");
      return { status: 200, body: await history.page(userOf(caller), request, marksViewed, languages) };
    },
    async getNotificationsSummary({ query: { page, size, sort, ...rest } }, { caller }) {
      nothingElse(rest);
      const request = page === undefined && size === undefined ? undefined : pageOf({ page, size, sort });
      return { status: 200, body: { viewed: await history.summary(userOf(caller), request) } };
    },
    async listNotifications({ query: { page, size, idempotencyKey, state: states, ...rest } }, { caller }) {
      nothingElse(rest);
      const sentWith =
        idempotencyKey === undefined ? undefined : { clientId: clientOf(caller), idempotencyKey };
      return { status: 200, body: await notifications.list(pageOf({ page, size }), { sentWith, states }) };
    },
    getNotification: ofNotification((id) => notifications.get(id)),
    pauseNotification: ofNotification((id) => notifications.pause(id)),
    resumeNotification: ofNotification((id) => notifications.resume(id)),
    cancelNotification: ofNotification((id) => notifications.cancel(id)),
    recallNotification: ofNotification((id) => notifications.recall(id)),
    listFailures: ofNotification(async (id) => ({ content: await notifications.failures(id) })),
    async listProviders() {
      return { status: 200, body: { content: await providers.list() } };
    },
    async resumeProvider({ path: { provider }, query: { origin, ...rest } }) {
      nothingElse(rest);
      return { status: 200, body: await providers.resume(provider, origin) };
    },
    async confirmRemovals({ path: { provider } }) {
      return { status: 200, body: await providers.decideRemovals(provider, "confirm") };
    },
    async discardRemovals({ path: { provider } }) {
      return { status: 200, body: await providers.decideRemovals(provider, "discard") };
    },
    async listDeadLetters({ query: { page, size, ...rest } }) {
      nothingElse(rest);
      return { status: 200, body: await notifications.deadLetters(pageOf({ page, size })) };
    },
    async replayAllDeadLetters({ query: { notificationId, provider, ...rest } }) {
      nothingElse(rest);
      await notifications.replayAll({ notificationId: notificationId?.toLowerCase(), provider });
      return { status: 202 };
    },
    async replayDeadLetter({ path: { id } }) {
      await notifications.replay(id);
      return { status: 204 };
    },
  };
}

/** The handler of an operation whose path has the id of a notification, which may be in either case. */
function ofNotification<Body>(act: (id: string) => Promise<Body>) {
  return async ({ path: { id } }: { readonly path: { readonly id: string } }) => ({
    status: 200 as const,
    body: await act(id.toLowerCase()),
  });
}

/** The binding rejects unauthenticated requests to a protected operation, so a missing caller is a defect. */
function clientOf(caller: Caller | undefined): string {
  if (!caller) throw new Error("an operation of an application has no caller");
  return caller.clientId;
}

function userOf(caller: Caller | undefined): string {
  if (caller?.userId === undefined) throw new Error("an operation of a user has no user");
  return caller.userId;
}

/** The members of a request, each of which may be absent. */
type AsAsked<T> = { readonly [K in keyof T]?: T[K] | undefined };

/** The page to return, with the defaults of the document. */
function pageOf({ page = 0, size = 20, sort = [] }: AsAsked<PageRequest>): PageRequest {
  return { page, size: Math.min(size, largestPage), sort };
}

/** Minutes, or the name of a time zone: by the header's pattern a text that is no offset can be nothing else. */
function offsetOfHeader(text: string | undefined): number | string | undefined {
  return text === undefined ? undefined : (readUtcOffset(text) ?? text);
}

/** The token to delete. The schema demands it unless all are to be deleted. */
function tokenToDelete(token: string | null | undefined): string {
  if (typeof token !== "string") throw invalidInput([{ pointer: "/body/token", message: "is required" }]);
  return token;
}

/** A date-time whose syntax the schema has checked. */
function instantOf(text: string): Date {
  const instant = readDateTime(text);
  if (instant === undefined) {
    throw invalidInput([{ pointer: "/body/expiration", message: "is not a date-time" }]);
  }
  return new Date(instant);
}

/** Checks what the schema cannot express, and returns the notification. */
function notificationOf({ title, message, image, utcOffsets }: Stated<Schemas["PushNotification"]>) {
  const errors: InputError[] = [];
  const report: Report = (pointer, problem) => errors.push({ pointer, message: problem });
  checkText({ message }, "/body", report);
  const name = readImage(image, "/body/image", report) ?? null;
  const minutes = new Set<number>();
  for (const [index, offset] of utcOffsets.entries()) {
    const value = minutesOf(offset);
    if (value === undefined) report(`/body/utcOffsets/${index}`, "is not a UTC offset");
    else minutes.add(value);
  }
  if (errors.length > 0) throw invalidInput(errors);
  return { title, message, image: name, utcOffsets: [...minutes] };
}
