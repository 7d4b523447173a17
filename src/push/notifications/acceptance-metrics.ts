/** What operators see of the acceptance of notifications. */
import type { Metrics } from "../../platform/observability/metrics.ts";
import type { NotificationKind } from "./store-notification.ts";

const audiences = {
  OFFSETS: "offsets",
  USERS: "users",
  FILTERS: "filters",
  EVERYBODY: "everybody",
  TEST: "test",
} as const satisfies Record<NotificationKind, string>;

/** Counts a notification that was accepted. */
export type CountAccepted = (kind: NotificationKind) => void;

export function createCountAccepted({ counter }: Pick<Metrics, "counter">): CountAccepted {
  const accepted = counter(
    "gatepost_push_notifications_total",
    "Notifications that this process has accepted, by what their audience is; a repeated call counts once.",
    { audience: Object.values(audiences) },
  );
  return (kind) => accepted.inc({ audience: audiences[kind] });
}
