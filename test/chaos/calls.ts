/** Calls of the push API at whichever process is up, as through a balancer. */
import { setTimeout as pause } from "node:timers/promises";
import type { Chance } from "./random.ts";
import type { World } from "./world.ts";

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
}

interface Call {
  readonly method: string;
  /** Below /v1/pushprovider. */
  readonly path: string;
  /** An access token; the back office's unless given. */
  readonly token?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: object;
}

export interface Calls {
  /** Calls once. @returns undefined if there was no answer */
  once(call: Call): Promise<Answer | undefined>;
  /** Calls until it is answered and not to try again, at another process each time. Harmless calls only. */
  send(call: Call): Promise<Answer>;
}

/** Whether the caller is to try again: also where a process stood still until the request seemed to have taken too long. */
export const isToBeRepeated = ({ status }: Answer) => status === 408 || status === 429 || status === 503;

const path = "/api/push-orchestration/v1/pushprovider";
/** Milliseconds; a process may be stopped. */
const patienceMs = 15_000;
/** Milliseconds for which the back office's token is used: less than its lifetime, and revocations play no part. */
const tokenMs = 300_000;

export function createCalls({ members, auth }: Pick<World, "members" | "auth">, chance: Chance): Calls {
  let backoffice: { readonly token: string; readonly until: number } | undefined;

  /** Where no new one can be had at the moment, the one before is still good. */
  async function operatorToken(): Promise<string> {
    if (backoffice && Date.now() < backoffice.until) return backoffice.token;
    const token = await auth.backofficeToken().catch(() => backoffice?.token);
    if (token === undefined) throw new Error("there is no token of the back office");
    backoffice = { token, until: Date.now() + tokenMs };
    return token;
  }

  async function once(call: Call): Promise<Answer | undefined> {
    const up = members.filter(({ isUp }) => isUp);
    if (up.length === 0) return undefined;
    const { origin } = chance.one(up).process;
    try {
      const token = call.token ?? (await operatorToken());
      const response = await fetch(`${origin}${path}${call.path}`, {
        method: call.method,
        headers: {
          authorization: `Bearer ${token}`,
          ...(call.json && { "content-type": "application/json" }),
          ...call.headers,
        },
        ...(call.json && { body: JSON.stringify(call.json) }),
        signal: AbortSignal.timeout(patienceMs),
      });
      return { status: response.status, headers: response.headers, text: await response.text() };
    } catch {
      return undefined;
    }
  }

  return {
    once,
    async send(call) {
      for (;;) {
        const answer = await once(call);
        if (answer && !isToBeRepeated(answer)) return answer;
        await pause(200);
      }
    },
  };
}
