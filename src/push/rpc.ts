/** push.v1 over gRPC, gRPC-Web and Connect: decode, authorise, one call, encode. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  DeliveryService,
  type NotificationProgressSchema,
  NotificationState,
} from "../../gen/proto/push/v1/delivery_pb.ts";
import { withRequestTimeout } from "../platform/base/deadlines.ts";
import { invalidInput } from "../platform/base/errors.ts";
import { pause } from "../platform/base/loop.ts";
import { implement, type RpcService } from "../platform/rpc/service.ts";
import type { Callers } from "./callers/callers.ts";
import { unauthenticated } from "./errors.ts";
import { isNotificationId } from "./notifications/lock-notification.ts";
import type { NotificationProgress } from "./notifications/progress.ts";
import type { WatchProgress } from "./notifications/watch-progress.ts";

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
