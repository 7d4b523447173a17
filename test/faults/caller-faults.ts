/** What callers and operators bring about: locks, guesses, and the end of very many authorizations. */
import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { say } from "../../scripts/command.ts";
import type { AttemptRule } from "../../src/auth/limits/attempt-counters.ts";
import { guessingRules } from "../../src/auth/limits/guessing.ts";
import { measure, run } from "../bench/processes.ts";
import type { Fault, Scene } from "./fault.ts";
import { type Call, grant, HttpClient, introspection, isActive, isRefusal, member } from "./http-client.ts";

/** A phone that nobody in the load has. */
const foreignPhone = () => `+1303${2_000_000 + Math.floor(Math.random() * 7_000_000)}`;

/** Makes an identity at the first server. @returns its id */
export async function newIdentity(
  { world: { members, credentials } }: Scene,
  http: HttpClient,
): Promise<string> {
  const id = randomUUID();
  const json = { id, phone: foreignPhone() };
  const as = credentials.internal;
  const call: Call = { method: "POST", path: "/v1/identities", as, json };
  const { status } = await http.send(members[0].process.origin, call);
  if (status !== 200) throw new Error(`no identity could be made: ${status}`);
  return id;
}

const locks: Fault = {
  name: "locks",
  what: "a transaction holds the rows of ten identities, and forty callers at a time wait for them",
  short: false,
  concerns: "others",
  async play(scene) {
    const { world, ledger, isShort } = scene;
    const { admin, members, credentials } = world;
    const http = new HttpClient();
    const ids = await Promise.all(Array.from({ length: 10 }, () => newIdentity(scene, http)));
    const until = Date.now() + (isShort ? 3_000 : 10_000);
    async function wait(caller: number): Promise<void> {
      // Each of them has callers of both kinds.
      const id = ids[Math.floor(caller / 2) % ids.length] ?? "";
      const json = { metadata: { caller } };
      const change: Call = { method: "PUT", path: `/v1/identities/${id}`, as: credentials.internal, json };
      const call = caller % 2 === 0 ? change : grant(credentials.other, { grant_type: "auth", auth_id: id });
      while (Date.now() < until) {
        const response = await http.send(members[caller % members.length]?.process.origin ?? "", call);
        if (!isRefusal(response) && ![200, 204].includes(response.status))
          ledger.wrong.push(`a caller that waits for a lock: ${response.status}`);
        // It is served once the lock is gone, and asks no more then.
        await setTimeout(100);
      }
    }
    await admin.begin(async (tx) => {
      await tx`select id from auth.identities where id = any(${ids}) for update`;
      const waiting = Promise.all(Array.from({ length: 40 }, (_, caller) => wait(caller)));
      await setTimeout(until - Date.now());
      // The lock goes while they still wait.
      void waiting.then(() => http.close());
    });
  },
};

/** Passwords that a process checks at the same time, at most: so many may exceed the limit of a client. */
const mostAtOnce = 128;

const guessing: Fault = {
  name: "guessing",
  what: "400 callers at a time guess passwords, of invented names and of four identities",
  short: false,
  concerns: "others",
  async play(scene) {
    const {
      world: { members, credentials },
      ledger,
      isShort,
    } = scene;
    const http = new HttpClient();
    const victims = await Promise.all(Array.from({ length: 4 }, () => newIdentity(scene, http)));
    const [judgedBefore, startedAt] = [await judgedGuesses(scene), Date.now()];
    const until = startedAt + (isShort ? 1_000 : 15_000);
    /** How many guesses were rejected as wrong, by the name that was guessed at. */
    const judged = new Map<string, number>();
    /** How many others there were: where a response was late, the guess may have been judged all the same. */
    let refused = 0;
    async function guess(caller: number): Promise<void> {
      // Every tenth guesses at somebody, by another client, whose limit the others do not use up.
      const victim = caller % 10 === 0 ? victims[(caller / 10) % victims.length] : undefined;
      const as = victim === undefined ? credentials.guesser : credentials.other;
      while (Date.now() < until) {
        const guessed = {
          grant_type: "password",
          username: victim ?? randomUUID(),
          password: "correct horse",
        };
        const server = members[(caller + Math.floor(caller / 10)) % members.length];
        const response = await http.send(server?.process.origin ?? "", grant(as, guessed));
        const name = victim ?? "invented";
        if (response.status === 400) judged.set(name, (judged.get(name) ?? 0) + 1);
        else if (isRefusal(response)) refused += 1;
        else ledger.wrong.push(`a wrong password: ${response.status}`);
        await setTimeout(500);
      }
    }
    await Promise.all(Array.from({ length: 400 }, (_, caller) => guess(caller)));
    http.close();
    // No window of an identity ends meanwhile, nor one of a client on a machine that has time.
    const seconds = (Date.now() - startedAt) / 1_000;
    const most = ({ failures, windowSeconds }: AttemptRule) => failures * Math.ceil(seconds / windowSeconds);
    const { password, client } = guessingRules;
    const expectWithin = (name: string, count: number, limit: number) => {
      if (count > limit) ledger.wrong.push(`${count} guesses at ${name} were judged: more than ${limit}`);
    };
    for (const victim of victims) expectWithin("one identity", judged.get(victim) ?? 0, most(password));
    const mostOfClient = most(client) + members.length * mostAtOnce;
    expectWithin("invented names", judged.get("invented") ?? 0, mostOfClient);
    const rejected = [...judged.values()].reduce((sum, count) => sum + count, 0);
    const all = (await judgedGuesses(scene)) - judgedBefore;
    expectWithin("all", all, mostOfClient + victims.length * most(password));
    if (all < rejected || all > rejected + refused)
      ledger.wrong.push(`${rejected} guesses were rejected as wrong, ${refused} refused, and ${all} judged`);
    say(
      `       ${all} guesses were judged, ${[...judged.values()].join(" + ")} of them rejected, ${refused} refused`,
    );
  },
};

/** The wrong guesses that all servers have judged since their start, by their own count. */
async function judgedGuesses({ world: { members } }: Scene): Promise<number> {
  const counts = await Promise.all(
    members.map(async ({ process }) => {
      const text = await (await fetch(`${process.management}/metrics`)).text();
      const samples = [...text.matchAll(/^gatepost_guesses_failed_total\{.*\} (\d+)$/gm)];
      return samples.reduce((sum, [, value]) => sum + Number(value), 0);
    }),
  );
  return counts.reduce((sum, count) => sum + count, 0);
}

/** Milliseconds that the sweep of a client's authorizations may take. */
const maxSweepMs = 600_000;

/** Whether all authorizations of the identity are marked as revoked. */
async function areMarked(admin: Scene["world"]["admin"], identityId: string): Promise<boolean> {
  const left = await admin`
    select from auth.authorizations where identity_id = ${identityId} and revoked_at is null limit 1`;
  return left.length === 0;
}

const removal: Fault = {
  name: "removal",
  what: "a client with a million authorizations (20,000 in the short form) is taken off the list",
  short: true,
  concerns: "others",
  async play(scene) {
    const { world, ledger, isShort } = scene;
    const { admin, members, credentials } = world;
    const http = new HttpClient();
    const origin = members[0].process.origin;
    const id = await newIdentity(scene, http);
    const issue = grant(credentials.former, { grant_type: "auth", auth_id: id });
    const token = member(await http.send(origin, issue), "access_token");
    await multiply(admin, id, isShort ? 20_000 : 1_000_000);
    await members[1].process.stop();
    await members[1].restart({
      OAUTH_SERVER_CLIENTS: world.clientList("application", "other", "guesser"),
      OAUTH_SERVER_CLIENTS_REVISION: "2",
      JANITOR_INTERVAL_SECONDS: "1",
    });
    // Its start was seen: from now on nobody says otherwise, not even those who started with the older list.
    for (const { process } of members) {
      const asked = await http.send(process.origin, introspection(credentials.internal, token));
      if (isRefusal(asked)) continue;
      if (isActive(asked)) ledger.wrong.push("a token of the removed client is active");
      const issued = await http.send(process.origin, issue);
      if (!isRefusal(issued) && issued.status !== 400)
        ledger.wrong.push(`the removed client was given tokens: ${issued.status}`);
    }
    http.close();
    // After a week its authorizations end for good: they are marked, a few at a time, and their events delivered.
    await admin`update auth.clients set disabled_at = disabled_at - interval '8 days' where client_id = 'former'`;
    const startedAt = Date.now();
    while (!(await areMarked(admin, id))) {
      if (Date.now() > startedAt + maxSweepMs) {
        ledger.wrong.push("authorizations of the removed client are not marked");
        break;
      }
      await setTimeout(1_000);
    }
    say(`       it has waited ${((Date.now() - startedAt) / 1_000).toFixed(0)} s until they were marked`);
  },
};

const overload: Fault = {
  name: "overload",
  what: "one process is asked for twice as many introspections as it can answer",
  short: false,
  // All processes share the processors of this machine.
  concerns: "everybody",
  async play({ world: { members, credentials }, ledger }) {
    const directory = mkdtempSync(join(tmpdir(), "gatepost-faults-"));
    try {
      const bodies = join(directory, "bodies");
      const tokens = [...ledger.accounts].flatMap(({ chains, ending }) =>
        chains
          .filter((chain) => ending === "none" && chain.ending === "none")
          .map(({ accessTokens }) => accessTokens[0]),
      );
      writeFileSync(bodies, tokens.map((token) => `token=${token}`).join("\n"));
      const { port } = new URL(members[1].process.origin);
      const closed = ["http-any", port, credentials.internal, bodies, "64", "3"];
      const { perSecond } = await measure(1, "load-closed.ts", closed);
      const open = ["http-any", port, credentials.internal, bodies, `${Math.round(2 * perSecond)}x10`];
      const { phases, unanswered }: Overloaded = JSON.parse(await run(1, "load-open.ts", open));
      if (unanswered > 0)
        ledger.wrong.push(`${unanswered} introspections of too many were not answered at all`);
      for (const { offered, failed, failure, unsent } of phases) {
        if (failed > 0) ledger.wrong.push(`${failed} introspections of too many: ${failure}`);
        if (unsent > offered / 2) ledger.wrong.push(`${unsent} introspections of ${offered} found no room`);
      }
    } finally {
      rmSync(directory, { recursive: true });
    }
  },
};

/** What load-open.ts prints. */
interface Overloaded {
  readonly phases: readonly {
    readonly offered: number;
    readonly failed: number;
    readonly failure?: string;
    readonly unsent: number;
  }[];
  readonly unanswered: number;
}

/** Copies of the authorization that the identity has; the statement takes a while. */
async function multiply(admin: Scene["world"]["admin"], identityId: string, count: number): Promise<void> {
  const [row] = await admin<{ names: string }[]>`
    select string_agg(quote_ident(column_name), ', ') as names from information_schema.columns
    where table_schema = 'auth' and table_name = 'authorizations' and column_name <> 'id'`;
  await admin.unsafe(
    `insert into auth.authorizations (id, ${row?.names})
     select gen_random_uuid(), ${row?.names} from auth.authorizations, generate_series(1, ${count})
     where identity_id = $1`,
    [identityId],
  );
  await admin`analyze auth.authorizations`;
}

export const callerFaults: readonly Fault[] = [locks, guessing, removal, overload];
