/** push.v1 over gRPC, gRPC-Web and Connect: decode, authorise, one call, encode. */
import { type MessageInitShape, toJson } from "@bufbuild/protobuf";
import type { operations } from "../../gen/openapi/push-orchestration.ts";
import {
  DeliveryService,
  type NotificationProgressSchema,
  NotificationState,
} from "../../gen/proto/push/v1/delivery_pb.ts";
import {
  CreateNotificationRequestSchema,
  ExclusionReason,
  MessageOutcome,
  NotificationService,
  PreviewNotificationRequestSchema,
  type PreviewNotificationResponseSchema,
  type RecipientOutcomeSchema,
} from "../../gen/proto/push/v1/notifications_pb.ts";
import { withRequestTimeout } from "../platform/base/deadlines.ts";
import { invalidInput } from "../platform/base/errors.ts";
import { pause } from "../platform/base/loop.ts";
import { createBodyReader } from "../platform/openapi/body-reader.ts";
import type { ContractDocument } from "../platform/openapi/document.ts";
import { implement, type RpcCall, type RpcService } from "../platform/rpc/service.ts";
import type { Callers } from "./callers/callers.ts";
import { unauthenticated } from "./errors.ts";
import { largestPage } from "./history/history.ts";
import { sendingRules } from "./http.ts";
import { isNotificationId } from "./notifications/lock-notification.ts";
import type { NotificationPreview } from "./notifications/preview.ts";
import type { NotificationProgress } from "./notifications/progress.ts";
import type { RecipientOutcome } from "./notifications/recipients.ts";
import type { Sending } from "./notifications/sending.ts";
import type { WatchProgress } from "./notifications/watch-progress.ts";
import type { PageRequest } from "./pages.ts";

interface Dependencies {
  readonly callers: Omit<Callers, "close">;
  readonly watchProgress: WatchProgress;
  /** Milliseconds between two checks of the token of an open stream. */
  readonly checkMs?: number;
}

export function pushRpc({ callers, watchProgress, checkMs = 15_000 }: Dependencies): RpcService {
  return implement(DeliveryService, {
    async *watchProgress({ notificationId }, { metadata, signal }) {
      const authorization = metadata("authorization");
      const check = async () => {
        // A stream has no deadline of its own.
        if (!(await withRequestTimeout(callers.backoffice(authorization)))) throw unauthenticated();
      };
      await check();
      if (!isNotificationId(notificationId)) {
        throw invalidInput([{ pointer: "/body/notification_id", message: "is not a UUID" }]);
      }
      const ending = new AbortController();
      const watching = AbortSignal.any([signal, ending.signal]);
      let refusal: { readonly error: unknown } | undefined;
      void refusalOf(check, checkMs, watching).then((found) => {
        refusal = found;
        ending.abort();
      });
      try {
        for await (const progress of watchProgress(notificationId.toLowerCase(), watching)) {
          if (refusal) break;
          yield { progress: progressMessage(progress) };
        }
        if (refusal) throw refusal.error;
      } finally {
        ending.abort();
      }
    },
  });
}

/** Checks at an interval until a check fails, whose error is returned, or the signal is aborted. Never rejects. */
async function refusalOf(
  check: () => Promise<void>,
  everyMs: number,
  signal: AbortSignal,
): Promise<{ readonly error: unknown } | undefined> {
  while (!signal.aborted) {
    await pause(everyMs, signal);
    try {
      if (!signal.aborted) await check();
    } catch (error) {
      return signal.aborted ? undefined : { error };
    }
  }
  return undefined;
}

function progressMessage(
  progress: NotificationProgress,
): MessageInitShape<typeof NotificationProgressSchema> {
  const { state, image, completedAt, recalledAt, notice, breakdown, ...same } = progress;
  return {
    ...same,
    state: NotificationState[state],
    breakdown: [...breakdown],
    ...(image !== null && { image }),
    ...(completedAt !== null && { completedAt }),
    ...(recalledAt !== null && { recalledAt }),
    ...(notice !== undefined && { notice }),
  };
}

/** The last page that may be asked for, as the document says. */
const lastPage = 1_000_000;

interface NotificationDependencies {
  readonly callers: Pick<Callers, "backoffice">;
  readonly sending: Sending;
  /** The document, whose schemas bodies of JSON and messages share. */
  readonly document: ContractDocument;
}

/** push.v1.NotificationService. Its messages in their JSON form are the bodies of the operations over HTTP. */
export function notificationRpc({ callers, sending, document }: NotificationDependencies): RpcService {
  const readBody = createBodyReader<operations>(document, sendingRules(sending));

  const limitOf = (id: string) => document.operations.find((one) => one.id === id)?.bodyLimit ?? 0;
  const clients = new WeakMap<RpcCall, string>();

  async function admits(call: RpcCall): Promise<void> {
    const caller = await withRequestTimeout(callers.backoffice(call.metadata("authorization")));
    if (!caller) throw unauthenticated();
    clients.set(call, caller.clientId);
  }

  return implement(
    NotificationService,
    {
      async createNotification(request, call) {
        const { metadata } = call;
        const clientId = clients.get(call);
        if (clientId === undefined) throw unauthenticated();
        const body = toJson(CreateNotificationRequestSchema, request);
        const notification = readBody("createNotification", body, metadata);
        const key = metadata("idempotency-key");
        const { id, warnings } = await sending.create(clientId, notification, key);
        return { id, warnings: [...warnings] };
      },
      async previewNotification(request, { metadata }) {
        const body = toJson(PreviewNotificationRequestSchema, request);
        return previewMessage(await sending.preview(readBody("previewNotification", body, metadata)));
      },
      async listRecipients({ notificationId, page, size = 20 }) {
        if (!isNotificationId(notificationId))
          throw invalidInput([{ pointer: "/body/notificationId", message: "is not a UUID" }]);
        const { content, ...same } = await sending.recipients(
          notificationId.toLowerCase(),
          recipientsPage(page, size),
        );
        return { ...same, content: content.map(outcomeMessage) };
      },
    },
    {
      admits,
      refusesUnknownMembers: true,
      maxMessageBytes: {
        createNotification: limitOf("createNotification"),
        previewNotification: limitOf("previewNotification"),
      },
    },
  );
}

/** As over HTTP: a page has 100 at most, however many are asked for. */
function recipientsPage(page: number, size: number): PageRequest {
  const errors = [
    ...(page > lastPage ? [{ pointer: "/body/page", message: `must be <= ${lastPage}` }] : []),
    ...(size < 1 ? [{ pointer: "/body/size", message: "must be >= 1" }] : []),
  ];
  if (errors.length > 0) throw invalidInput(errors);
  return { page, size: Math.min(size, largestPage) };
}

function previewMessage(
  preview: NotificationPreview,
): MessageInitShape<typeof PreviewNotificationResponseSchema> {
  const { users, breakdown, excluded, payloads, finishesAt, warnings, ...same } = preview;
  return {
    ...same,
    breakdown: breakdown.map(({ language, platform, ...share }) => ({
      ...share,
      ...(language !== null && { language }),
      ...(platform !== null && { platform }),
    })),
    excluded: excluded.map(({ reason, devices }) => ({ reason: ExclusionReason[reason], devices })),
    payloads: payloads.map(({ language, ...size }) => ({ ...size, ...(language !== null && { language }) })),
    warnings: [...warnings],
    ...(users !== null && { users }),
    ...(finishesAt !== null && { finishesAt }),
  };
}

function outcomeMessage({
  outcome,
  reason,
  ...same
}: RecipientOutcome): MessageInitShape<typeof RecipientOutcomeSchema> {
  return { ...same, outcome: MessageOutcome[outcome], ...(reason !== null && { reason }) };
}
