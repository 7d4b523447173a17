/** What may go wrong while notifications are sent: each trouble with its name, and how it is played. */
import { setTimeout as pause } from "node:timers/promises";
import type { Scenario } from "../../src/development/provider-fakes/scenario.ts";
import { type Provider, providers } from "./fakes.ts";
import type { Chance } from "./random.ts";
import type { Member, World } from "./world.ts";

export interface Trouble {
  readonly name: string;
  /** How often it comes, compared with the others. */
  readonly weight: number;
  /**
   * What it breaks, so that a message may come again: a process for good at the beginning, connections to a provider
   * meanwhile, the time of a process, which stands still meanwhile, or connections to the database at the beginning.
   */
  readonly breaks?: "process" | "connections" | "time" | "database";
  /** Plays it to its end. @returns whom it concerned; undefined if it could not be played now */
  play(world: World, chance: Chance): Promise<Concerned | undefined>;
}

/** Whom a trouble concerned. */
interface Concerned {
  /** The only provider that it concerned. */
  readonly provider?: Provider;
}

/** A time in which a trouble was played. Milliseconds since the epoch. */
export interface Played extends Concerned {
  readonly trouble: Trouble;
  readonly startedAt: number;
  readonly endedAt: number;
}

/** Processes that no trouble may have, so that work goes on. */
const spared = 1;

/** Has a process that no other trouble has. @returns undefined if too few are left */
async function withMember(
  { members }: World,
  chance: Chance,
  work: (member: Member) => Promise<void>,
): Promise<Concerned | undefined> {
  const free = members.filter(({ isTaken }) => !isTaken);
  if (free.length <= spared) return undefined;
  const member = chance.one(free);
  member.isTaken = true;
  try {
    await work(member);
    return {};
  } finally {
    member.isTaken = false;
  }
}

const processTroubles: readonly Trouble[] = [
  {
    name: "kill -9 and restart",
    weight: 3,
    breaks: "process",
    play: (world, chance) =>
      withMember(world, chance, async (member) => {
        member.isUp = false;
        await member.process.kill();
        await pause(chance.between(0, 3_000));
        await member.restart();
      }),
  },
  {
    name: "SIGTERM and restart",
    weight: 2,
    play: (world, chance) =>
      withMember(world, chance, async (member) => {
        member.isUp = false;
        await member.process.stop();
        await member.restart();
      }),
  },
  {
    name: "SIGSTOP and SIGCONT",
    weight: 2,
    breaks: "time",
    play: (world, chance) =>
      withMember(world, chance, async (member) => {
        member.isUp = false;
        member.process.child.kill("SIGSTOP");
        await pause(chance.between(500, 12_000));
        member.process.child.kill("SIGCONT");
        member.isUp = true;
      }),
  },
  {
    name: "database connections ended",
    weight: 3,
    breaks: "database",
    async play({ admin }, chance) {
      await admin`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name <> 'chaos' and backend_type = 'client backend'
          and random() < ${chance.between(0.1, 1)}`;
      return {};
    },
  },
];

/** A trouble of one provider, drawn anew each time. */
function scenario(
  name: string,
  weight: number,
  draw: (chance: Chance, provider: Provider) => Scenario & { readonly seconds: number },
  breaks?: Trouble["breaks"],
): Trouble {
  return {
    name,
    weight,
    ...(breaks && { breaks }),
    async play({ fakes }, chance) {
      const provider = chance.one(providers);
      const drawn = draw(chance, provider);
      await fakes.play(provider, drawn);
      await pause(drawn.seconds * 1_000);
      return { provider };
    },
  };
}

const outOfQuota = { fcm: "QUOTA_EXCEEDED", apns: "TooManyRequests", webpush: "TooManyRequests" } as const;
const unavailable = {
  fcm: "UNAVAILABLE",
  apns: "ServiceUnavailable",
  webpush: "ServiceUnavailable",
} as const;
const seconds = (chance: Chance) => chance.between(2, 8);

const providerTroubles: readonly Trouble[] = [
  scenario("answers after 150 ms", 2, (chance) => ({ delayMs: 150, seconds: seconds(chance) })),
  scenario("0.1 % answered after 2 s", 2, (chance) => ({
    ...{ delayMs: 2_000, share: 0.001 },
    seconds: seconds(chance),
  })),
  scenario("0.1 % never answered", 2, (chance) => ({
    ...{ fault: "timeout", share: 0.001 },
    seconds: seconds(chance),
  })),
  scenario("503 with Retry-After", 2, (chance, provider) => ({
    ...{ answer: unavailable[provider], retryAfter: chance.integer(1, 3), share: chance.one([0.02, 0.3, 1]) },
    seconds: chance.between(1, 5),
  })),
  scenario("429 with Retry-After", 2, (chance, provider) => ({
    ...{ answer: outOfQuota[provider], retryAfter: chance.integer(1, 3), share: chance.one([0.02, 1]) },
    seconds: chance.between(1, 3),
  })),
  scenario(
    "GOAWAY",
    3,
    (chance) => ({ fault: "goaway", code: chance.one([0, 0, 2]), times: chance.integer(1, 5), seconds: 2 }),
    "connections",
  ),
  scenario(
    "connections reset",
    3,
    (chance) => ({
      fault: chance.one(["disconnect", "disconnect-after-accept"] as const),
      ...{ times: chance.integer(1, 5), seconds: 2 },
    }),
    "connections",
  ),
  scenario(
    "streams reset",
    2,
    (chance) => ({
      fault: chance.one(["reset", "reset-after-accept"] as const),
      ...{ share: 0.01, seconds: seconds(chance) },
    }),
    "connections",
  ),
  scenario(
    "no connections",
    1,
    (chance) => ({
      ...{ fault: "refuse-connections", seconds: chance.between(1, 4) },
    }),
    "connections",
  ),
  {
    name: "FCM's access tokens expired",
    weight: 1,
    async play({ fakes }) {
      await fakes.expireAccessTokens();
      return { provider: "fcm" };
    },
  },
];

export const troubles: readonly Trouble[] = [...processTroubles, ...providerTroubles];

export interface Troubles {
  /** What could not be played, as when a process did not start again; in words. */
  readonly problems: ReadonlySet<string>;
  end(): Promise<readonly Played[]>;
}

/** Plays troubles at random, several at once, until it is told to end; the last ones are played to their end. */
export function startTroubles(world: World, chance: Chance): Troubles {
  const played: Played[] = [];
  const problems = new Set<string>();
  const over = new AbortController();
  const open = new Set<Promise<void>>();
  const bag = troubles.flatMap((trouble) => Array.from({ length: trouble.weight }, () => trouble));

  async function playOne(trouble: Trouble): Promise<void> {
    const startedAt = Date.now();
    const concerned = await trouble.play(world, chance).catch((error: unknown) => {
      problems.add(`${trouble.name}: ${error}`);
      return {};
    });
    if (concerned) played.push({ trouble, startedAt, endedAt: Date.now(), ...concerned });
  }

  async function run(): Promise<void> {
    while (!over.signal.aborted) {
      await pause(chance.between(300, 2_500), undefined, { signal: over.signal }).catch(() => undefined);
      if (over.signal.aborted || open.size >= 4) continue;
      const playing = playOne(chance.one(bag)).finally(() => open.delete(playing));
      open.add(playing);
    }
  }

  const running = run();
  return {
    problems,
    async end() {
      over.abort();
      await running;
      await Promise.all(open);
      return played.toSorted((a, b) => a.startedAt - b.startedAt);
    },
  };
}
