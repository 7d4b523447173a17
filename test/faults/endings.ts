/** Tokens that are to end, by every request that ends one. */
import { randomInt, randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { type Call, grant, type HttpClient, type HttpResponse, isRefusal, member } from "./http-client.ts";
import type { Member, World } from "./world.ts";

/** An active token, and the request that ends it. */
export interface Ending {
  readonly way: WayName;
  /** An access token. */
  readonly token: string;
  readonly call: Call;
  /** The statuses that acknowledge it, also to a retry. */
  readonly acknowledged: readonly number[];
}

/** What came of a call that was asked again while it was refused. */
export interface Asked {
  /** The first response that is no refusal, or the last one. */
  readonly response: HttpResponse;
  readonly by: Member;
  /** When it was asked for the first time, by performance.now(). */
  readonly askedAt: number;
  /** How many came before it. */
  readonly refused: number;
  /** Milliseconds of the request that it is the response to. */
  readonly ms: number;
  /** Milliseconds of the longest request, refused or not. */
  readonly longestMs: number;
  /** Milliseconds of all requests, with the pauses between them. */
  readonly totalMs: number;
}

interface Pair {
  readonly access: string;
  readonly refresh: string;
}

/** What a way needs to get ready. */
interface Preparation {
  readonly credentials: World["credentials"];
  /** The id of the identity that has the pair. */
  readonly id: string;
  readonly pair: Pair;
  refresh(pair: Pair): Promise<Pair>;
}

const revocation = (as: string, token: string): Call => ({
  method: "POST",
  path: "/oauth2/v1/revoke",
  as,
  form: { token },
});

type Way = (preparation: Preparation) => Omit<Ending, "way"> | Promise<Omit<Ending, "way">>;

const ways = {
  "revocation of the access token": ({ credentials, pair: { access } }) => ({
    token: access,
    call: revocation(credentials.application, access),
    acknowledged: [200],
  }),
  "revocation of the refresh token": ({ credentials, pair: { access, refresh } }) => ({
    token: access,
    call: revocation(credentials.application, refresh),
    acknowledged: [200],
  }),
  // A thief presents the first token, whose successor has been presented.
  "reuse of a refresh token": async ({ credentials, pair, refresh }) => ({
    token: (await refresh(await refresh(pair))).access,
    call: grant(credentials.application, { grant_type: "refresh_token", refresh_token: pair.refresh }),
    acknowledged: [400],
  }),
  "deletion of the identity": ({ credentials, id, pair: { access } }) => ({
    token: access,
    call: { method: "DELETE", path: `/v1/identities/${id}`, as: credentials.internal },
    // An earlier try may have deleted it.
    acknowledged: [204, 404],
  }),
  "change of the password": ({ credentials, id, pair: { access } }) => ({
    token: access,
    call: {
      method: "PUT",
      path: `/v1/identities/${id}/password`,
      as: credentials.internal,
      json: { password: randomUUID() },
    },
    acknowledged: [204],
  }),
} satisfies Readonly<Record<string, Way>>;

/** How it ends, in words. */
type WayName = keyof typeof ways;

/** In turn. A password takes as long as a hundred of the others: there is one in ten. */
const turns: readonly WayName[] = [
  "revocation of the access token",
  "revocation of the refresh token",
  "reuse of a refresh token",
  "deletion of the identity",
  "revocation of the access token",
  "change of the password",
  "revocation of the refresh token",
  "reuse of a refresh token",
  "deletion of the identity",
  "revocation of the refresh token",
];

/** Milliseconds after which what was refused is asked again. */
const retryMs = 100;
/** Milliseconds for which it is: longer than the longest state, and than a request that hangs in it. */
const longestRefusalMs = 20_000;

/** Any server that is up, as a balancer chooses. @param but not this one */
export function serverOf({ members }: World, but?: Member): Member {
  const choice = members.filter((one) => one.isUp && one !== but);
  const found = choice[randomInt(choice.length)];
  if (!found) throw new Error("no server is up");
  return found;
}

/** Identities that were made, by all callers: no two of a deployment have one phone number. */
let people = 0;

/** Somebody who makes tokens, and ends them: tries again at the next server while it is refused, for a while. */
export class Caller {
  readonly #world: World;
  readonly #http: HttpClient;

  constructor(world: World, http: HttpClient) {
    this.#world = world;
    this.#http = http;
  }

  async ask(call: Call): Promise<Asked> {
    const askedAt = performance.now();
    let longestMs = 0;
    for (let refused = 0; ; refused += 1) {
      const by = serverOf(this.#world);
      const from = performance.now();
      const response = await this.#http.send(by.process.origin, call);
      const now = performance.now();
      const ms = now - from;
      longestMs = Math.max(longestMs, ms);
      if (!isRefusal(response) || now - askedAt > longestRefusalMs)
        return { response, by, askedAt, refused, ms, longestMs, totalMs: now - askedAt };
      await setTimeout(retryMs);
    }
  }

  /** A token of a new identity, by this client. @throws where it is not issued */
  async #signIn(as: string): Promise<{ id: string; pair: Pair }> {
    const { credentials } = this.#world;
    const id = randomUUID();
    people += 1;
    const json = { id, phone: `+1415${2_000_000 + people}` };
    // 409: an earlier try was done.
    await this.#expect({ method: "POST", path: "/v1/identities", as: credentials.internal, json }, 200, 409);
    return { id, pair: await this.#pair(as, { grant_type: "auth", auth_id: id }) };
  }

  async #pair(as: string, form: Record<string, string>): Promise<Pair> {
    const response = await this.#expect(grant(as, form), 200);
    return { access: member(response, "access_token"), refresh: member(response, "refresh_token") };
  }

  async #expect(call: Call, ...statuses: number[]): Promise<HttpResponse> {
    const { response } = await this.ask(call);
    if (statuses.includes(response.status)) return response;
    throw new Error(`${call.method} ${call.path}: ${response.status} ${JSON.stringify(response.body)}`);
  }

  /** @param chosen the way, or a number that chooses it */
  async newEnding(chosen: number | WayName): Promise<Ending> {
    const { credentials } = this.#world;
    const { application } = credentials;
    const turn = typeof chosen === "number" ? turns[chosen % turns.length] : chosen;
    const way = turn ?? "revocation of the access token";
    const prepare: Way = ways[way];
    const { id, pair } = await this.#signIn(application);
    const refresh = ({ refresh: refresh_token }: Pair) =>
      this.#pair(application, { grant_type: "refresh_token", refresh_token });
    return { way, ...(await prepare({ credentials, id, pair, refresh })) };
  }

  /** A token of the client that is taken off the list. */
  async newTokenOfFormerClient(): Promise<string> {
    return (await this.#signIn(this.#world.credentials.former)).pair.access;
  }
}
