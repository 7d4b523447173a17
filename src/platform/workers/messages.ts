/** What a primary and a worker tell each other, over the channel between their processes. */
import type { Unready } from "../process/lifecycle.ts";

export type ToWorker =
  /** Asks for `alive`. */
  | { readonly type: "look" }
  /** Asks for `metrics`. */
  | { readonly type: "scrape"; readonly id: number }
  /** The ports may be listened on. */
  | { readonly type: "listen" }
  | { readonly type: "stop"; readonly signal: NodeJS.Signals };

/** What a worker knows that the primary, which loads no service, does not. */
export interface WorkerReport {
  /** The databases, for messages. */
  readonly database: string;
  /** What an operator should know of the settings; undefined: nothing. */
  readonly warning?: string | undefined;
}

export type FromWorker =
  | { readonly type: "alive"; readonly unready: readonly Unready[]; readonly warnings: readonly Unready[] }
  | { readonly type: "metrics"; readonly id: number; readonly text: string }
  /** Asks for `listen`. */
  | { readonly type: "prepared" }
  | { readonly type: "listening"; readonly report: WorkerReport };
