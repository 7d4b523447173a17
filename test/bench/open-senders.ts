/** How the open-loop load sends a request when it is due. */
import { formRequest, loadOf, refreshOf } from "./loads.ts";
import { tokensPath } from "./product.ts";
import { lost, type Responded, type Slot } from "./slots.ts";

/**
 * What became of a request: its result, a 503 (or UNAVAILABLE), anything else, or nothing, as it was given up before a
 * slot was free for it.
 */
export type Answered = "good" | "refused" | "unsent" | { readonly failure: string };

/** Sends the next request. Without anything to send it says so as a failure. */
export type Send = (answered: (result: Answered) => void) => void;

/** Milliseconds after which a request is given up that no slot was free for. */
const patienceMs = 1_000;
/** In the place of a status, where a request was given up. */
const unsent = -1;

/**
 * @param kind a protocol of loads.ts, or refresh
 * @param inFlight requests at a time, at most, a multiple of 256. A client keeps back those that it has no slot for.
 */
export async function sendersOf(
  kind: string,
  port: number,
  authorization: string,
  lines: readonly string[],
  inFlight: number,
): Promise<Send> {
  const load = loadOf(kind === "refresh" ? "http" : kind, port, authorization, lines);
  const send = overFree(await load.open(inFlight));
  if (kind === "refresh") {
    return refreshSender(send, load.requests, (form) =>
      formRequest({ port, path: tokensPath, authorization }, form),
    );
  }
  let next = 0;
  return (answered) => {
    const request = load.requests[next++ % load.requests.length];
    if (request) send(request, (status, body) => answered(resultOf(status, body, load.isWhole)));
  };
}

/** Sends over a slot that has no request in flight; without one, the request waits for it, for a second. */
function overFree(slots: readonly Slot[]): Slot {
  interface Waiting {
    readonly request: Buffer;
    readonly answered: Responded;
    readonly since: number;
  }
  const free = [...slots];
  // A set takes as little time for its first element as for its last one, however many there are.
  const waiting = new Set<Waiting>();
  const nextWaiting = (): Waiting | undefined => {
    for (const next of waiting) {
      waiting.delete(next);
      if (performance.now() - next.since <= patienceMs) return next;
      next.answered(unsent, "");
    }
    return undefined;
  };
  const sendOver = (slot: Slot, request: Buffer, answered: Responded) =>
    slot(request, (status, text) => {
      answered(status, text);
      if (status === lost) return;
      const next = nextWaiting();
      if (next) sendOver(slot, next.request, next.answered);
      else free.push(slot);
    });
  return (request, answered) => {
    const slot = free.shift();
    if (slot) sendOver(slot, request, answered);
    else waiting.add({ request, answered, since: performance.now() });
  };
}

function resultOf(status: number, text: string, isWhole: (body: string) => boolean): Answered {
  if (status === 200 && isWhole(text)) return "good";
  if (status === unsent) return "unsent";
  return status === 503 ? "refused" : { failure: `${status} ${text.slice(0, 300)}` };
}

/** Refreshes what it has got: each authorization once at a time. */
async function refreshSender(
  send: Slot,
  grants: readonly Buffer[],
  post: (form: string) => Buffer,
): Promise<Send> {
  const free: Buffer[] = [];
  for (let from = 0; from < grants.length; from += 100) {
    const obtained = grants.slice(from, from + 100).map(
      (grant) =>
        new Promise<void>((resolve, reject) =>
          send(grant, (status, text) => {
            const refresh = refreshOf(text);
            if (!refresh) return reject(new Error(`no grant: ${status} ${text}`));
            free.push(post(refresh));
            resolve();
          }),
        ),
    );
    await Promise.all(obtained);
  }
  return (answered) => {
    const request = free.shift();
    if (!request) return answered({ failure: "every authorization is being refreshed" });
    send(request, (status, text) => {
      const refresh = status === 200 ? refreshOf(text) : undefined;
      free.push(refresh === undefined ? request : post(refresh));
      answered(resultOf(status, text, () => refresh !== undefined));
    });
  };
}
