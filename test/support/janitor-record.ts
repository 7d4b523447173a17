import type { JanitorObserver } from "../../src/platform/base/observers.ts";

/** Keeps what a janitor reports. */
export function janitorRecord<Kind extends string>() {
  const rows: Partial<Record<Kind, number>> = {};
  const caughtUp = new Set<Kind>();
  let rounds = 0;
  const observer: JanitorObserver<Kind> = {
    cleaned(kind, count) {
      rows[kind] = (rows[kind] ?? 0) + count;
    },
    caughtUp: (kind) => caughtUp.add(kind),
    roundEnded() {
      rounds += 1;
    },
  };
  return { observer, rows, caughtUp, rounds: () => rounds };
}
