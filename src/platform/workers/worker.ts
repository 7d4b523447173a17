/** A worker's side: what it responds to its primary, whose word it waits for to listen and to stop. */
import type { ProcessEvents, Unready } from "../process/lifecycle.ts";
import type { FromWorker, ToWorker, WorkerReport } from "./messages.ts";

interface ServedPart {
  readonly unready: () => readonly Unready[];
  readonly warnings: () => readonly Unready[];
  /** In Prometheus's text format. */
  readonly metrics: () => Promise<string>;
}

const starting: ServedPart = {
  unready: () => [{ name: "process", reason: "starting" }],
  warnings: () => [],
  metrics: async () => "",
};

export interface Primary {
  /** Says that this worker is ready, and resolves when it may listen. */
  mayListen(): Promise<void>;
  /** What the primary is told of from now on. */
  shows(part: ServedPart): void;
  listens(report: WorkerReport): void;
  /** Stops come from the primary: a terminal and a supervisor signal every process. */
  onSignal: ProcessEvents["onSignal"];
}

/** Begins to respond to the primary. If that is lost, Node.js ends the worker. */
export function joinPrimary(): Primary {
  const listen = Promise.withResolvers<void>();
  const stop = Promise.withResolvers<NodeJS.Signals>();
  let served = starting;
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.on(signal, () => undefined);
  process.on("message", (message: ToWorker) => {
    if (message.type === "look")
      tell({ type: "alive", unready: served.unready(), warnings: served.warnings() });
    else if (message.type === "listen") listen.resolve();
    else if (message.type === "stop") stop.resolve(message.signal);
    else {
      const { id } = message;
      // A worker that cannot tell is left out.
      served.metrics().then(
        (text) => tell({ type: "metrics", id, text }),
        () => undefined,
      );
    }
  });
  return {
    mayListen() {
      tell({ type: "prepared" });
      return listen.promise;
    },
    shows(part) {
      served = part;
    },
    listens: (report) => tell({ type: "listening", report }),
    onSignal: (handle) => void stop.promise.then(handle),
  };
}

function tell(message: FromWorker): void {
  if (process.connected) process.send?.(message);
}
