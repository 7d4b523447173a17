/**
 * The chunks of `delivery_chunks` as a queue: their states, and every statement that changes them. Each transition is
 * one statement.
 *
 * | from            | to      | when                                                  | by                                |
 * | --------------- | ------- | ----------------------------------------------------- | --------------------------------- |
 * | -               | READY   | a range is planned                                    | notifications/plan-range.ts       |
 * | READY           | TAKEN   | a process has room for it                             | take-chunks.ts                    |
 * | TAKEN           | DONE    | its results are stored; what is left becomes chunks   | store-results.ts                  |
 * | -               | READY   | devices that were not tried, or wait for the provider | store-results.ts                  |
 * | -               | WAITING | devices for later: the next try, their send's rate     | store-results.ts                  |
 * | -               | DEAD    | devices that are given up                             | store-results.ts                  |
 * | TAKEN           | WAITING | its sending has thrown                                | give-back.ts                      |
 * | TAKEN           | READY   | its process has died, stops, or does not know of it   | give-back.ts                      |
 * | TAKEN           | DEAD    | either, {@link maxTakes} times in a row               | give-back.ts                      |
 * | WAITING         | READY   | it is due                                             | give-back.ts                      |
 * | READY, TAKEN    | PARKED  | somebody meets it, and its notification is paused     | notifications/follow-chunks.ts    |
 * | PARKED          | READY   | its notification was resumed                          | notifications/follow-chunks.ts    |
 * | all but DEAD    | DONE    | its notification was cancelled or has expired         | notifications/follow-chunks.ts    |
 * | DEAD            | READY   | an operator replays it                                | notifications/dead-letters.ts     |
 *
 * A chunk of a cancelled notification is met by a take, which sets its attempt and leaves it READY until it is set aside.
 *
 * DONE chunks are added to their notification's totals and deleted when it completes (complete-notification.ts).
 */
export const chunkStates = ["READY", "WAITING", "PARKED", "TAKEN", "DONE", "DEAD"] as const;
export type ChunkState = (typeof chunkStates)[number];

/** A chunk whose sending has thrown, or whose process has died, so often in a row is a dead letter. */
export const maxTakes = 10;

/** The turn of the chunks of a test run, which come first. */
export const testTurn = -1;

/** Chunks of one range of a notification; the turn of a range's chunks begins at its number times this. */
export const turnsOfRange = 1_000;
