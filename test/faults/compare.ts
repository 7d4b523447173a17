/**
 * Compares the ledger with how the servers respond afterwards, and with the database. What was acknowledged and is
 * not there is lost; what was ended and still lives is wrong.
 */
import { setTimeout } from "node:timers/promises";
import { compareDeletions } from "./deletions.ts";
import {
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
import type { World } from "./world.ts";

/** How often what is refused is asked again before it counts as lost. */
const tries = 20;
const retryMs = 100;
/** Accounts that are looked at side by side. */
const atOnce = 8;

export async function compare(world: World, ledger: Ledger): Promise<void> {
  const { members, credentials, admin } = world;
  const http = new HttpClient();
  let turn = 0;

  async function ask(call: Call, server?: string): Promise<HttpResponse> {
    for (let left = tries; ; left -= 1) {
      turn += 1;
      const origin = server ?? members[turn % members.length]?.process.origin ?? "";
      const response = await http.send(origin, call);
      if (!isRefusal(response) || left === 0) return response;
      await setTimeout(retryMs);
    }
  }

  async function expectActive(token: string): Promise<void> {
    const response = await ask(introspection(credentials.internal, token));
    if (!isActive(response))
      ledger.lost.push(`an access token: ${response.status} ${JSON.stringify(response.body)}`);
  }

  /** Asks every server, as each decides by itself. */
  async function expectInactive(token: string): Promise<void> {
    for (const { process } of members) {
      const response = await ask(introspection(credentials.internal, token), process.origin);
      if (response.status !== 200 || isActive(response))
        ledger.wrong.push(
          `a token whose end was acknowledged: ${response.status} ${JSON.stringify(response.body)}`,
        );
    }
  }

  async function compareChain(chain: Chain, isEnded: boolean): Promise<void> {
    if (isEnded) {
      for (const token of chain.accessTokens) await expectInactive(token);
      const refused = await ask(refreshOf(chain));
      if (refused.status !== 400)
        ledger.wrong.push(`an ended authorization was refreshed: ${refused.status}`);
      return;
    }
    for (const token of chain.accessTokens) await expectActive(token);
    const response = await ask(refreshOf(chain));
    if (response.status !== 200) {
      ledger.lost.push(`a refresh token: ${response.status} ${JSON.stringify(response.body)}`);
      chain.ending = "acknowledged";
      return;
    }
    chain.refreshToken = member(response, "refresh_token");
    chain.accessTokens.push(member(response, "access_token"));
    await expectActive(member(response, "access_token"));
  }

  const refreshOf = ({ refreshToken }: Chain) =>
    grant(credentials.application, { grant_type: "refresh_token", refresh_token: refreshToken });

  async function compareAccount(account: Account): Promise<void> {
    const path = `/v1/identities/${account.id}`;
    const { status } = await ask({ method: "GET", path, as: credentials.internal });
    if (account.ending === "none" && status !== 200) ledger.lost.push(`an identity: ${status}`);
    if (account.ending === "acknowledged" && status !== 404)
      ledger.wrong.push(`a deleted identity: ${status}`);
    for (const chain of account.chains) {
      const endings = [account.ending, chain.ending];
      if (endings.includes("acknowledged")) await compareChain(chain, true);
      else if (!endings.includes("requested")) await compareChain(chain, false);
    }
  }

  const accounts = [...ledger.accounts];
  async function compareSome(): Promise<void> {
    for (let account = accounts.pop(); account; account = accounts.pop()) await compareAccount(account);
  }
  await Promise.all(Array.from({ length: atOnce }, compareSome));
  for (const token of ledger.revoked) await expectInactive(token);
  http.close();
  await compareRows(ledger, admin);
  await compareDeletions(world, ledger);
}

/** The same in the database, which no cache and no code of the product has a part in. */
async function compareRows(ledger: Ledger, admin: World["admin"]): Promise<void> {
  const living = [...ledger.accounts].flatMap(({ ending, chains }) =>
    ending === "none" ? chains.filter((chain) => chain.ending === "none") : [],
  );
  const ids = living.map(({ authorizationId }) => authorizationId);
  const rows = await admin<{ id: string }[]>`
    select id from auth.authorizations where id = any(${ids}::uuid[]) and revoked_at is null`;
  const found = new Set(rows.map(({ id }) => id));
  for (const id of ids) if (!found.has(id)) ledger.lost.push(`no row of the authorization ${id} is active`);
  const reused = await admin<{ id: string }[]>`
    select id from auth.authorizations where revocation_reason = 'REUSE'`;
  for (const { id } of reused) {
    if (!ledger.reused.has(id)) ledger.wrong.push(`the authorization ${id} was ended as reuse`);
    ledger.reused.add(id);
  }
}
