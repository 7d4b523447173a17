/** The priorities of requests, highest first: what is answered first while not all requests can be. */
export const priorities = ["high", "normal", "low"] as const;
export type Priority = (typeof priorities)[number];

/** An operation or method, as far as it matters for whether its requests are admitted. */
export interface Prioritized {
  readonly service: string;
  readonly priority: Priority;
}
