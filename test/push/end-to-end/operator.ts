/** An operator at work: calls of the push API with the back office's token, each answer held against the document. */
import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { expect } from "vitest";
import type { components } from "../../../gen/openapi/push-orchestration.ts";
import { type Answer, type CallOptions, contractCall } from "../../support/contract-api.ts";
import { readContract } from "../../support/contract-check.ts";
import type { PushAddress } from "../../support/push-server.ts";
import { worldOffsets } from "../../support/send-audience.ts";

export type Progress = components["schemas"]["NotificationProgress"];
type PushNotification = components["schemas"]["PushNotification"];

export interface Api {
  /** As nobody, unless `as` is given. */
  call(operation: string, options?: CallOptions): Promise<Answer>;
}

export interface Operator extends Api {
  /** The Authorization header. */
  readonly as: string;
  /** To the whole audience, unless told otherwise. @returns the notification's id */
  send(fields?: Partial<PushNotification>, headers?: Record<string, string>): Promise<string>;
  progress(id: string): Promise<Progress>;
  pause(id: string): Promise<Progress>;
  resume(id: string): Promise<Progress>;
  cancel(id: string): Promise<Progress>;
  list(): Promise<components["schemas"]["NotificationsPage"]>;
  /** Waits until it has ended. */
  ended(id: string, seconds?: number): Promise<Progress>;
}

const contract = readContract("push-orchestration");

/** The API of a server. */
export function apiOf({ base }: Pick<PushAddress, "base">): Api {
  return { call: contractCall(new URL(base).origin, contract) };
}

/** @param as the Authorization header, where it is not a new token's */
export async function operatorOf(
  server: Pick<PushAddress, "base" | "backofficeToken">,
  as?: string,
): Promise<Operator> {
  const authorization = as ?? `Bearer ${await server.backofficeToken()}`;
  const { call } = apiOf(server);

  /** On a busy machine the caller's token may not be introspected in time: a 503 is followed by another try. */
  async function answer(operation: string, options: CallOptions): Promise<Answer> {
    for (let again = 5; ; again -= 1) {
      const response = await call(operation, { as: authorization, ...options });
      if (response.status !== 503 || again === 0) return response;
      await pause(Number(response.headers.get("retry-after") ?? 1) * 1_000);
    }
  }

  async function ok<T>(operation: string, options: CallOptions): Promise<T> {
    const { status, text } = await answer(operation, options);
    expect(status, text).toBe(200);
    const body: T = JSON.parse(text);
    return body;
  }
  const of = (operation: string) => (id: string) => ok<Progress>(operation, { path: { id } });
  const progress = of("getNotification");

  return {
    as: authorization,
    call,
    async send(fields = {}, headers = {}) {
      const json = {
        title: "Good morning",
        message: "The shop opens at nine.",
        utcOffsets: worldOffsets,
        ...fields,
      };
      // By its key, another try sends nothing twice.
      const key = { "Idempotency-Key": randomUUID() };
      const response = await answer("sendPushNotification", { json, headers: { ...key, ...headers } });
      expect(response.status, response.text).toBe(204);
      return response.headers.get("notification-id") ?? "";
    },
    progress,
    pause: of("pauseNotification"),
    resume: of("resumeNotification"),
    cancel: of("cancelNotification"),
    list: () => ok("listNotifications", {}),
    async ended(id, seconds = 60) {
      let last = await progress(id);
      const hasEnded = async () => {
        last = await progress(id);
        return last.completedAt !== null;
      };
      await until(`notification ${id} has ended`, hasEnded, seconds);
      return last;
    },
  };
}

/** Waits for it; says what did not come. */
export async function until(
  what: string,
  isTrue: () => boolean | Promise<boolean>,
  seconds = 60,
): Promise<void> {
  const end = performance.now() + seconds * 1000;
  while (!(await isTrue())) {
    if (performance.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await pause(20);
  }
}

const counts = ["planned", "sent", "failed", "dropped", "deadLettered", "remaining"] as const;

/** What of it does not add up, in words. */
export function discrepancies(progress: Pick<Progress, (typeof counts)[number] | "breakdown">): string[] {
  const parts = [
    { name: "in all", ...progress },
    ...progress.breakdown.map((part) => ({ name: `${part.utcOffset} ${part.provider}`, ...part })),
  ];
  const wrong = parts.filter(
    ({ planned, sent, failed, dropped, deadLettered, remaining }) =>
      planned !== sent + failed + dropped + deadLettered + remaining,
  );
  const unequal = counts.filter(
    (count) => progress[count] !== progress.breakdown.reduce((sum, part) => sum + part[count], 0),
  );
  return [
    ...wrong.map(({ name }) => `${name}: planned is not the sum`),
    ...unequal.map((count) => `${count} is not the sum of its parts`),
  ];
}

export interface Looks {
  /** How often the progress was seen. */
  readonly count: number;
  readonly states: readonly Progress["state"][];
  /** What was wrong with what was seen, each once. */
  readonly problems: readonly string[];
}

/**
 * Looks at a notification's progress all the time, and whether it adds up and never goes back; where the server is
 * away, as soon as it is there again.
 * @returns ends it
 */
export function lookAllTheTime(
  { call, as }: Pick<Operator, "call" | "as">,
  id: string,
): () => Promise<Looks> {
  const problems = new Set<string>();
  const states: Progress["state"][] = [];
  const finished = { planned: 0, sent: 0, recipients: 0 };
  let count = 0;
  let isOver = false;

  function look(progress: Progress): void {
    count += 1;
    if (states.at(-1) !== progress.state) states.push(progress.state);
    for (const problem of discrepancies(progress)) problems.add(problem);
    for (const name of ["planned", "sent", "recipients"] as const) {
      if (progress[name] < finished[name])
        problems.add(`${name} has gone back from ${finished[name]} to ${progress[name]}`);
      finished[name] = progress[name];
    }
  }

  async function lookOnce(): Promise<boolean> {
    const answer = await call("getNotification", { as, path: { id } }).catch((error: unknown) => {
      // A server that is away answers nothing; an answer that is not in the document is a finding.
      if (!(error instanceof TypeError)) problems.add(String(error));
      return undefined;
    });
    if (answer?.status === 200) look(JSON.parse(answer.text));
    else if (answer && answer.status !== 503) problems.add(`answered ${answer.status}: ${answer.text}`);
    return answer !== undefined;
  }

  async function run(): Promise<void> {
    while (!isOver) await pause((await lookOnce()) ? 40 : 100);
    await lookOnce();
  }

  const running = run();
  return async () => {
    isOver = true;
    await running;
    return { count, states, problems: [...problems] };
  };
}

/** A name that no other test has. */
export const someone = (): string => `u-${randomUUID()}`;
