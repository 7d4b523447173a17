/** push.v1 over gRPC, gRPC-Web and Connect: decode, authorise, one call, encode. */
import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  DeliveryService,
  type NotificationProgressSchema,
  NotificationState,
} from "../../gen/proto/push/v1/delivery_pb.ts";
import { inTime } from "../platform/deadlines.ts";
import { invalidInput } from "../platform/errors.ts";
import { implement, type RpcService } from "../platform/rpc.ts";
import type { Callers } from "./callers/callers.ts";
import { unauthenticated } from "./errors.ts";
import type { NotificationProgress } from "./notifications/notifications.ts";
import type { WatchProgress } from "./notifications/watch-progress.ts";

interface Dependencies {
  readonly callers: Omit<Callers, "close">;
  readonly watchProgress: WatchProgress;
}

const uuid = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

export function pushRpc({ callers, watchProgress }: Dependencies): RpcService {
  return implement(DeliveryService, {
    async *watchProgress({ notificationId }, { metadata, signal }) {
      // A stream has no deadline of its own.
      if (!(await inTime(callers.backoffice(metadata("authorization"))))) throw unauthenticated();
      if (!uuid.test(notificationId)) {
        throw invalidInput([{ pointer: "/body/notification_id", message: "is not a UUID" }]);
      }
      for await (const progress of watchProgress(notificationId.toLowerCase(), signal)) {
        yield { progress: progressMessage(progress) };
      }
    },
  });
}

function progressMessage(
  progress: NotificationProgress,
): MessageInitShape<typeof NotificationProgressSchema> {
  const { state, image, completedAt, breakdown, ...same } = progress;
  return {
    ...same,
    state: NotificationState[state],
    breakdown: [...breakdown],
    ...(image !== null && { image }),
    ...(completedAt !== null && { completedAt }),
  };
}
