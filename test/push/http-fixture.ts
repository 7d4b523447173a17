/** The operations of the push document in front of features that only note what they are asked for. */
import { beforeAll, beforeEach, expect } from "vitest";
import { contractTexts, loadContract } from "../../src/platform/openapi/document.ts";
import type { ProviderStatus } from "../../src/push/delivery/provider-control.ts";
import { wrongApplication } from "../../src/push/errors.ts";
import { pushHttp } from "../../src/push/http.ts";
import type { NotificationPreview } from "../../src/push/notifications/preview.ts";
import type { NotificationProgress } from "../../src/push/notifications/progress.ts";
import { readNotification } from "../../src/push/notifications/read-notification.ts";
import { captureLog } from "../support/captured-log.ts";
import { type CallOptions, type ContractCall, contractCall } from "../support/contract-api.ts";
import { readContract } from "../support/contract-check.ts";
import { type ServedApp, serveApp } from "../support/http-app.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";

export const id = "019aa4b1-9d3c-7a52-8c11-5be0a1f6d201";
export const user = "Bearer of-a-user";
export const backoffice = "Bearer of-the-back-office";
export const progress: NotificationProgress = {
  ...{ id, title: "t", message: "m", image: null, test: false, state: "SENDING" },
  ...{ acceptedAt: "2026-11-21T09:30:00.000Z", completedAt: null, recalledAt: null, removalStopped: false },
  ...{ recipients: 1, planned: 2, sent: 1, failed: 0, dropped: 0, deadLettered: 0, remaining: 1 },
  notice: undefined,
  breakdown: [
    {
      ...{ utcOffset: 330, provider: "fcm", planned: 2 },
      ...{ sent: 1, failed: 0, dropped: 0, deadLettered: 0, remaining: 1 },
    },
  ],
};

export const preview: NotificationPreview = {
  ...{ users: 1, devices: 2, isEstimate: false, excluded: [], finishesAt: null, warnings: [] },
  breakdown: [{ provider: "fcm", language: "de", platform: "ios", devices: 2 }],
  payloads: [{ provider: "fcm", language: "de", bytes: 200, limit: 4096, isShortened: false }],
};

export const provider: ProviderStatus = {
  ...{ provider: "fcm", state: "OPEN", reason: null, since: null, pausedUntil: null, origins: [] },
  removals: { heldSince: null, waiting: 0 },
};

/** Serves the operations to the tests of a file. */
export function pushOperations() {
  /** What the features were asked for. */
  const asked: unknown[] = [];
  function note<Answer>(answer: Answer) {
    return async (...values: unknown[]) => {
      asked.push(...values);
      return answer;
    };
  }

  let app: ServedApp;
  let call: ContractCall;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    const page = { number: 0, size: 20, totalElements: 0 };
    const served = pushHttp(
      {
        callers: {
          async user(authorization) {
            if (authorization === backoffice) throw wrongApplication();
            return authorization === user
              ? { userId: "u-1", clientId: "app", authorizationId: undefined }
              : undefined;
          },
          async backoffice(authorization) {
            if (authorization === user) throw wrongApplication();
            return authorization === backoffice ? { clientId: "office" } : undefined;
          },
        },
        devices: { save: note(undefined), remove: note(undefined), removeAll: note(undefined) },
        history: { page: note({ content: [], ...page }), summary: note(true) },
        notifications: {
          accept: note({ notificationId: id }),
          list: note({ content: [progress], ...page }),
          get: note(progress),
          pause: note(progress),
          resume: note(progress),
          cancel: note(progress),
          recall: note(progress),
          deadLetters: note({ content: [], ...page }),
          replay: note(undefined),
          replayAll: note(undefined),
          failures: note([]),
          startTestRun: note(undefined),
        },
        sending: {
          problems: (written) => readNotification(written, Date.now()).errors,
          create: note({ id, warnings: [] }),
          preview: note(preview),
          recipients: note({ content: [], ...page }),
        },
        providers: { list: note([]), resume: note(provider), decideRemovals: note(provider) },
      },
      {
        document: await loadContract(contractTexts("push-orchestration")),
        logger: captureLog().logger,
        observer: { serves() {}, completed() {} },
        validateResponses: true,
      },
    );
    app = await serveApp(served.app);
    cleanup.defer(() => app.close());
    call = contractCall(app.origin, readContract("push-orchestration"));
  });
  beforeEach(() => {
    asked.length = 0;
  });

  /** Calls as the application that may. */
  const asUser = (operation: string, options: CallOptions = {}) => call(operation, { as: user, ...options });
  const asOffice = (operation: string, options: CallOptions = {}) =>
    call(operation, { as: backoffice, ...options });

  /** The place that was refused; it is the only one, and no feature was asked. */
  function refusedAt({ status, body }: { status: number; body: unknown }): string {
    expect(status).toBe(400);
    expect(asked).toEqual([]);
    const places = new Set(Object(body).errors.map(({ pointer }: { pointer: string }) => pointer));
    expect(places.size).toBe(1);
    return String([...places][0]);
  }
  return {
    asked,
    call: (...of: Parameters<ContractCall>) => call(...of),
    asUser,
    asOffice,
    refusedAt,
    origin: () => app.origin,
  };
}
