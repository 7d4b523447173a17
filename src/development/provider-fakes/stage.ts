/**
 * Where the scenarios of one fake are played. Owns which of them concerns a request, how often and how long
 * they play, and carries them out. With none on, a request costs one comparison.
 */
import type { Clock } from "../../platform/base/clock.ts";
import type { Exchange, FakeResponse } from "./exchange.ts";
import type { Ledger } from "./ledger.ts";
import type { Scenario } from "./scenario.ts";

/** A scenario that is on. */
export interface Playing {
  readonly id: number;
  readonly scenario: Scenario;
  /** Requests that it was played to. */
  readonly played: number;
  /** Ends it. */
  stop(): void;
}

/** What a provider brings to the stage. */
interface Repertoire {
  /** The answer of a row of its table, as the scenario wants it. */
  answer(row: string, scenario: Scenario, exchange: Exchange): FakeResponse;
  /** What a token plays by its name alone. */
  byToken(token: string): Scenario | undefined;
}

export interface Stage {
  play(scenario: Scenario): Playing;
  /** Those that are on. */
  playing(): Playing[];
  /** Ends all of them. */
  clear(): void;
  /**
   * Answers a request without mistakes: as a scenario has it, or by accepting it.
   * @param accept records the message and makes the answer; called at most once
   */
  perform(exchange: Exchange, token: string, accept: () => FakeResponse): void;
  /** The same for the OAuth token endpoint. */
  performToken(exchange: Exchange, accept: () => FakeResponse): void;
}

interface Scene {
  readonly id: number;
  readonly scenario: Scenario;
  readonly pattern: RegExp | undefined;
  readonly endsAt: number;
  played: number;
}

interface Connections {
  refuseConnections(): void;
  acceptConnections(): void;
}

/** An empty stage. */
export function createStage(dependencies: {
  readonly clock: Clock;
  readonly ledger: Ledger;
  readonly repertoire: Repertoire;
  /** Asked for when connections are to be refused. */
  readonly connections: () => Connections;
}): Stage {
  const { clock, ledger, repertoire, connections } = dependencies;
  let scenes: Scene[] = [];
  let lastId = 0;

  function end(ended: (scene: Scene) => boolean): void {
    const wasRefusing = scenes.some(isRefusing);
    scenes = scenes.filter((scene) => !ended(scene));
    if (wasRefusing && !scenes.some(isRefusing)) connections().acceptConnections();
  }

  function concerns(scene: Scene, token: string, on: "messages" | "token"): boolean {
    const { scenario, pattern } = scene;
    if ((scenario.on ?? "messages") !== on || isRefusing(scene)) return false;
    if (scenario.tokenPrefix !== undefined && !token.startsWith(scenario.tokenPrefix)) return false;
    if (pattern !== undefined && !pattern.test(token)) return false;
    if (scenario.share === undefined) return true;
    const draw = scenario.shareOf === "tokens" ? tokenShare(token) : Math.random();
    return draw < scenario.share;
  }

  /** The first that concerns the request and does more than delay it, and the delays of all up to it. */
  function choose(token: string, on: "messages" | "token"): { delayMs: number; scenario?: Scenario } {
    const now = clock.now();
    if (scenes.some(({ endsAt }) => endsAt <= now)) end(({ endsAt }) => endsAt <= now);
    let delayMs = 0;
    for (const scene of scenes) {
      if (!concerns(scene, token, on)) continue;
      const { scenario } = scene;
      scene.played += 1;
      if (scene.played === scenario.times) end((other) => other === scene);
      delayMs += scenario.delayMs ?? 0;
      if (scenario.answer !== undefined || scenario.fault !== undefined) return { delayMs, scenario };
    }
    const scenario = on === "messages" ? repertoire.byToken(token) : undefined;
    return scenario ? { delayMs: delayMs + (scenario.delayMs ?? 0), scenario } : { delayMs };
  }

  function answerOf(exchange: Exchange, scenario: Scenario): FakeResponse | undefined {
    const { answer, retryAfter } = scenario;
    if (answer === undefined) return undefined;
    const made = typeof answer === "string" ? repertoire.answer(answer, scenario, exchange) : answer;
    ledger.answered(typeof answer === "string" ? answer : String(answer.status));
    if (retryAfter === undefined) return made;
    return { ...made, headers: { ...made.headers, "retry-after": String(retryAfter) } };
  }

  function carryOut(
    exchange: Exchange,
    scenario: Scenario | undefined,
    accept: () => FakeResponse,
  ): () => void {
    const answer = scenario && answerOf(exchange, scenario);
    if (answer) return () => exchange.answer(answer);
    if (scenario?.fault === undefined) {
      const accepted = accept();
      return () => exchange.answer(accepted);
    }
    ledger.answered(scenario.fault);
    return faulty(exchange, scenario, accept);
  }

  function perform(
    exchange: Exchange,
    token: string,
    on: "messages" | "token",
    accept: () => FakeResponse,
  ): void {
    const { delayMs, scenario } = choose(token, on);
    const act = carryOut(exchange, scenario, accept);
    if (delayMs === 0) act();
    else setTimeout(act, delayMs).unref();
  }

  return {
    play(scenario) {
      lastId += 1;
      const { tokenPattern, seconds, until } = scenario;
      const scene: Scene = {
        id: lastId,
        scenario,
        pattern: tokenPattern === undefined ? undefined : new RegExp(tokenPattern),
        endsAt: Math.min(
          seconds === undefined ? Number.POSITIVE_INFINITY : clock.now() + seconds * 1000,
          until === undefined ? Number.POSITIVE_INFINITY : Date.parse(until),
        ),
        played: 0,
      };
      scenes.push(scene);
      if (isRefusing(scene)) {
        connections().refuseConnections();
        // No request comes that would notice the end.
        const ms = scene.endsAt - clock.now();
        if (Number.isFinite(ms)) setTimeout(() => end((other) => other === scene), Math.max(0, ms)).unref();
      }
      return shown(scene);
    },
    playing: () => scenes.map(shown),
    clear: () => end(() => true),
    perform(exchange, token, accept) {
      if (scenes.length === 0 && repertoire.byToken(token) === undefined) exchange.answer(accept());
      else perform(exchange, token, "messages", accept);
    },
    performToken: (exchange, accept) => perform(exchange, "", "token", accept),
  };

  function shown(scene: Scene): Playing {
    return {
      id: scene.id,
      scenario: scene.scenario,
      get played() {
        return scene.played;
      },
      stop: () => end((other) => other === scene),
    };
  }
}

function isRefusing({ scenario }: Scene): boolean {
  return scenario.fault === "refuse-connections";
}

function faulty(exchange: Exchange, scenario: Scenario, accept: () => FakeResponse): () => void {
  const { fault, code = 0, reason = "Shutdown" } = scenario;
  if (fault?.endsWith("-after-accept")) accept();
  if (fault === "reset" || fault === "reset-after-accept") return () => exchange.reset();
  if (fault === "disconnect" || fault === "disconnect-after-accept") return () => exchange.disconnect();
  if (fault !== "goaway") return () => undefined;
  const accepted = code === 0 ? accept() : undefined;
  return () => {
    if (accepted) exchange.answer(accepted);
    exchange.goAway(code, JSON.stringify({ reason }));
  };
}

/** Where a token stands between 0 and 1: always at the same place, and evenly spread (FNV-1a, mixed). */
function tokenShare(token: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < token.length; at += 1) {
    hash = Math.imul(hash ^ token.charCodeAt(at), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) / 0x1_0000_0000;
}
