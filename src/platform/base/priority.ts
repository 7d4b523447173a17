/** The priorities of requests, highest first: what is answered first while not all requests can be. */
export const priorities = ["high", "normal", "low"] as const;
export type Priority = (typeof priorities)[number];
