/**
 * The load: people who sign in, refresh, sign out, and are deleted, by clients that behave. What a client is refused
 * it tries again, as also what it got no response to; what is acknowledged to it goes into the ledger.
 */
import { randomInt, randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import {
  authorizationOf,
  type Call,
  grant,
  HttpClient,
  type HttpResponse,
  introspection,
  isActive,
  isRefusal,
  member,
} from "./http-client.ts";
import type { Account, Chain, Ledger } from "./ledger.ts";
import type { Member, World } from "./world.ts";

/** Milliseconds between two requests of one person, and before what was refused is tried again. */
const thinkMs = 90;
const retryMs = 200;
/** Milliseconds after which a client that has lost a response asks again, at most. */
const longestLossMs = 1_500;
/** The share of people who have a password, and sign in by it: a hash takes as long as a hundred refreshes. */
const passwordShare = 1 / 8;
/** Milliseconds that the load may take to come to an end. */
const patienceMs = 20_000;

export interface Load {
  /** Goes on. */
  start(): void;
  /** Resolves when nothing is under way any more, or after a while, with what still is, in words. */
  pause(): Promise<readonly string[]>;
  close(): void;
}

export function createLoad({ members, credentials }: World, ledger: Ledger, people: number): Load {
  const http = new HttpClient();
  let turn = 0;
  let phones = 2_000_000;
  let isOn = false;
  let running: Promise<void>[] = [];
  /** What is asked for, for the first time or again. */
  const asking = new Set<{ readonly what: string }>();

  /** The next server, as a balancer hands out requests. */
  function next(): Member {
    for (const _ of members) {
      turn += 1;
      const found = members[turn % members.length];
      if (found?.isUp) return found;
    }
    return members[0];
  }

  function once(call: Call, { process } = next()): Promise<HttpResponse> {
    const send = () => http.send(process.origin, call);
    // A caller that is gone is refused nothing.
    return call.goneAfterMs === undefined ? ledger.attempt("request", send, isRefusal) : send();
  }

  /**
   * Asks until it is neither refused nor left without a response.
   * @param expected statuses; any other is wrong
   * @returns undefined if it was wrong
   */
  async function ask(what: string, call: Call, ...expected: number[]): Promise<HttpResponse | undefined> {
    const unanswered = { what };
    asking.add(unanswered);
    let response = await once(call);
    while (isRefusal(response)) {
      await setTimeout(retryMs);
      response = await once(call);
    }
    asking.delete(unanswered);
    if (expected.includes(response.status)) {
      ledger.acknowledged += 1;
      return response;
    }
    ledger.wrong.push(`${what}: ${response.status} ${JSON.stringify(response.body)}`);
    return undefined;
  }

  const pairOf = (response: HttpResponse | undefined) =>
    response && { access: member(response, "access_token"), refresh: member(response, "refresh_token") };

  async function create(): Promise<Account | undefined> {
    const id = randomUUID();
    phones += 1;
    const json = { id, phone: `+1202${phones}` };
    const call = { method: "POST", path: "/v1/identities", as: credentials.internal, json } as const;
    // 409: an earlier try was done, and its response was lost, as nobody else has this id and this phone.
    if (!(await ask("create identity", call, 200, 409))) return undefined;
    const password = Math.random() < passwordShare ? randomUUID() : undefined;
    const account: Account = { id, password, chains: [], ending: "none" };
    ledger.accounts.add(account);
    if (password === undefined) return account;
    // Once: where no response came it may still be set, however late, and would end what was issued before.
    const response = await once(setPassword(id, password));
    return response.status === 204 ? account : undefined;
  }

  const setPassword = (id: string, password: string): Call => ({
    method: "PUT",
    path: `/v1/identities/${id}/password`,
    as: credentials.internal,
    json: { password },
  });

  async function signIn(account: Account): Promise<Chain | undefined> {
    const { id, password } = account;
    // Whatever becomes of its tries, nobody uses up the attempts of who knows the password.
    const form =
      password === undefined
        ? { grant_type: "auth", auth_id: id }
        : { grant_type: "password", username: id, password };
    const pair = pairOf(await ask(form.grant_type, grant(credentials.application, form), 200));
    if (!pair) return undefined;
    const chain: Chain = {
      authorizationId: authorizationOf(pair.access),
      accessTokens: [pair.access],
      refreshToken: pair.refresh,
      ending: "none",
    };
    account.chains.push(chain);
    return chain;
  }

  /**
   * @returns whether the chain may be refreshed again soon. Not where a response was lost: its request may still be
   *   under way, and would present a token whose successor has been presented, as a thief does.
   */
  async function refresh(chain: Chain): Promise<boolean> {
    const call = grant(credentials.application, {
      grant_type: "refresh_token",
      refresh_token: chain.refreshToken,
    });
    const luck = Math.random();
    const isLost = luck < 0.15;
    if (isLost) {
      // The client is gone before it gets the response, and asks again later.
      await once({ ...call, goneAfterMs: randomInt(1, 12) });
      await setTimeout(randomInt(longestLossMs));
    }
    const twice = luck > 0.95;
    const [response, same] = await Promise.all([
      ask("refresh", call, 200),
      twice ? ask("refresh at the same time", call, 200) : undefined,
    ]);
    const pair = pairOf(response);
    if (!pair) return false;
    const other = pairOf(same);
    if (other && (other.refresh !== pair.refresh || other.access !== pair.access))
      ledger.wrong.push("two refreshes with one token gave two pairs");
    chain.refreshToken = pair.refresh;
    chain.accessTokens.push(pair.access);
    return !isLost;
  }

  /** What has ended is inactive from now on, whichever server is asked. */
  async function expectInactive(token: string): Promise<void> {
    for (const server of members.filter(({ isUp }) => isUp)) {
      const response = await once(introspection(credentials.internal, token), server);
      if (!isRefusal(response) && (response.status !== 200 || isActive(response)))
        ledger.wrong.push(
          `a token whose end was acknowledged: ${response.status} ${JSON.stringify(response.body)}`,
        );
    }
  }

  const revocation = (token: string): Call => ({
    method: "POST",
    path: "/oauth2/v1/revoke",
    as: credentials.application,
    form: { token },
  });

  async function signOut(chain: Chain): Promise<void> {
    chain.ending = "requested";
    if (!(await ask("revoke", revocation(chain.refreshToken), 200))) return;
    chain.ending = "acknowledged";
    for (const token of chain.accessTokens.slice(-2)) await expectInactive(token);
  }

  async function revokeOne(chain: Chain): Promise<void> {
    const token = chain.accessTokens.pop();
    if (token === undefined || !(await ask("revoke", revocation(token), 200))) return;
    ledger.revoked.add(token);
    await expectInactive(token);
  }

  async function remove(account: Account): Promise<void> {
    account.ending = "requested";
    const path = `/v1/identities/${account.id}`;
    // 404: an earlier try was done.
    const response = await ask("delete", { method: "DELETE", path, as: credentials.internal }, 204, 404);
    if (!response) return;
    account.ending = "acknowledged";
    for (const { accessTokens } of account.chains)
      for (const token of accessTokens.slice(-2)) await expectInactive(token);
  }

  async function changePassword({ id, chains }: Account): Promise<void> {
    for (const chain of chains) chain.ending = "requested";
    if (!(await ask("set password", setPassword(id, randomUUID()), 204))) return;
    for (const chain of chains) chain.ending = "acknowledged";
    for (const { accessTokens } of chains)
      for (const token of accessTokens.slice(-2)) await expectInactive(token);
  }

  /** A stay: signs in, refreshes a few times, and leaves in one way or another, or stays signed in. */
  async function live(): Promise<void> {
    const account = await create();
    const chain = account && (await signIn(account));
    if (!chain) return;
    for (let left = randomInt(1, 6); left > 0 && isOn; left -= 1) {
      await setTimeout(thinkMs);
      if (!(await refresh(chain))) break;
    }
    const ways = [() => signOut(chain), () => revokeOne(chain), () => remove(account), async () => undefined];
    if (account.password !== undefined) ways.push(() => changePassword(account));
    await ways[randomInt(ways.length)]?.();
  }

  async function person(): Promise<void> {
    await setTimeout(randomInt(500));
    while (isOn) {
      await live();
      await setTimeout(thinkMs);
    }
  }

  return {
    start() {
      if (isOn) return;
      isOn = true;
      running = Array.from({ length: people }, person);
    },
    async pause() {
      isOn = false;
      await Promise.race([Promise.all(running), setTimeout(patienceMs, undefined, { ref: false })]);
      return [...asking].map(({ what }) => what);
    },
    close: () => http.close(),
  };
}
