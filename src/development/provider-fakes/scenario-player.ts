/**
 * Plays the scenarios of one fake: chooses the one that applies to a request, carries it out, and ends it when its
 * requests or its time are used up. While none is playing, it costs a request one comparison.
 */
import type { Clock } from "../../platform/base/clock.ts";
import type { Exchange, FakeResponse } from "./exchange.ts";
import type { Arrival, Ledger } from "./ledger.ts";
import type { Scenario } from "./scenario.ts";

/** A scenario that is playing. */
export interface PlayingScenario {
  readonly id: number;
  readonly scenario: Scenario;
  /** The number of requests that it was applied to. */
  readonly played: number;
  /** Ends the scenario. */
  stop(): void;
}

/** The responses and the conventions of one provider. */
interface ProviderScenarios {
  /** The response of a row of the provider's table, with the values that the scenario gives. */
  response(row: string, scenario: Scenario, exchange: Exchange): FakeResponse;
  /** The scenario that a token plays by convention, because of its name. */
  byToken(token: string): Scenario | undefined;
}

/** An accepted request. */
interface Accepted {
  readonly response: FakeResponse;
  /** The message, if it is one that the ledger has recorded. */
  readonly arrival?: Arrival;
}

export interface ScenarioPlayer {
  play(scenario: Scenario): PlayingScenario;
  /** The scenarios that are playing. */
  playing(): PlayingScenario[];
  /** Ends all scenarios. */
  clear(): void;
  /**
   * Responds to a valid request: as a scenario says, or by accepting the message.
   * @param accept records the message; called at most once
   */
  respond(exchange: Exchange, token: string, accept: () => Accepted): void;
  /** Responds to a valid request to the OAuth token endpoint. */
  respondToTokenRequest(exchange: Exchange, accept: () => FakeResponse): void;
}

interface ScenarioState {
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

/** A player without scenarios. */
export function createScenarioPlayer(dependencies: {
  readonly clock: Clock;
  readonly ledger: Ledger;
  readonly provider: ProviderScenarios;
  /** Called when connections are to be refused or accepted again. */
  readonly connections: () => Connections;
}): ScenarioPlayer {
  const { clock, ledger, provider, connections } = dependencies;
  let states: ScenarioState[] = [];
  let lastId = 0;

  function end(ended: (state: ScenarioState) => boolean): void {
    const wasRefusing = states.some(isRefusing);
    states = states.filter((state) => !ended(state));
    if (wasRefusing && !states.some(isRefusing)) connections().acceptConnections();
  }

  function applies(state: ScenarioState, token: string, on: "messages" | "token"): boolean {
    const { scenario, pattern } = state;
    if ((scenario.on ?? "messages") !== on || isRefusing(state)) return false;
    if (scenario.tokenPrefix !== undefined && !token.startsWith(scenario.tokenPrefix)) return false;
    if (pattern !== undefined && !pattern.test(token)) return false;
    if (scenario.share === undefined) return true;
    const draw = scenario.shareOf === "tokens" ? tokenShare(token) : Math.random();
    return draw < scenario.share;
  }

  /** The first scenario that applies and does more than delay, and the sum of the delays up to it. */
  function choose(token: string, on: "messages" | "token"): { delayMs: number; scenario?: Scenario } {
    const now = clock.now();
    if (states.some(({ endsAt }) => endsAt <= now)) end(({ endsAt }) => endsAt <= now);
    let delayMs = 0;
    for (const state of states) {
      if (!applies(state, token, on)) continue;
      const { scenario } = state;
      state.played += 1;
      if (state.played === scenario.times) end((other) => other === state);
      delayMs += scenario.delayMs ?? 0;
      if (scenario.answer !== undefined || scenario.fault !== undefined) return { delayMs, scenario };
    }
    const scenario = on === "messages" ? provider.byToken(token) : undefined;
    return scenario ? { delayMs: delayMs + (scenario.delayMs ?? 0), scenario } : { delayMs };
  }

  function responseOf(exchange: Exchange, scenario: Scenario): FakeResponse | undefined {
    const { answer, retryAfter } = scenario;
    if (answer === undefined) return undefined;
    const made = typeof answer === "string" ? provider.response(answer, scenario, exchange) : answer;
    ledger.countResponse(typeof answer === "string" ? answer : String(answer.status));
    if (retryAfter === undefined) return made;
    return { ...made, headers: { ...made.headers, "retry-after": String(retryAfter) } };
  }

  function answer(exchange: Exchange, { response, arrival }: Accepted): void {
    if (exchange.respond(response) && arrival) ledger.recordResponse(arrival);
  }

  function carryOut(exchange: Exchange, scenario: Scenario | undefined, accept: () => Accepted): () => void {
    const response = scenario && responseOf(exchange, scenario);
    if (response) return () => (scenario.cut ? exchange.respondHalf(response) : exchange.respond(response));
    if (scenario?.fault === undefined) {
      const accepted = accept();
      return () => answer(exchange, accepted);
    }
    ledger.countResponse(scenario.fault);
    return faultAction(exchange, scenario, accept);
  }

  function faultAction(exchange: Exchange, scenario: Scenario, accept: () => Accepted): () => void {
    const { fault, code = 0, reason = "Shutdown" } = scenario;
    if (fault?.endsWith("-after-accept")) accept();
    if (fault === "reset" || fault === "reset-after-accept") return () => exchange.reset();
    if (fault === "disconnect" || fault === "disconnect-after-accept") return () => exchange.disconnect();
    if (fault !== "goaway") return () => undefined;
    const accepted = code === 0 ? accept() : undefined;
    return () => {
      if (accepted) answer(exchange, accepted);
      exchange.goAway(code, JSON.stringify({ reason }));
    };
  }

  function perform(
    exchange: Exchange,
    token: string,
    on: "messages" | "token",
    accept: () => Accepted,
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
      const state: ScenarioState = {
        id: lastId,
        scenario,
        pattern: tokenPattern === undefined ? undefined : new RegExp(tokenPattern),
        endsAt: Math.min(
          seconds === undefined ? Number.POSITIVE_INFINITY : clock.now() + seconds * 1000,
          until === undefined ? Number.POSITIVE_INFINITY : Date.parse(until),
        ),
        played: 0,
      };
      states.push(state);
      if (isRefusing(state)) {
        connections().refuseConnections();
        // While connections are refused no request can trigger the end, so a timer does.
        const ms = state.endsAt - clock.now();
        if (Number.isFinite(ms)) setTimeout(() => end((other) => other === state), Math.max(0, ms)).unref();
      }
      return shown(state);
    },
    playing: () => states.map(shown),
    clear: () => end(() => true),
    respond(exchange, token, accept) {
      if (states.length === 0 && provider.byToken(token) === undefined) answer(exchange, accept());
      else perform(exchange, token, "messages", accept);
    },
    respondToTokenRequest: (exchange, accept) =>
      perform(exchange, "", "token", () => ({ response: accept() })),
  };

  function shown(state: ScenarioState): PlayingScenario {
    return {
      id: state.id,
      scenario: state.scenario,
      get played() {
        return state.played;
      },
      stop: () => end((other) => other === state),
    };
  }
}

/**
 * Finds the scenario that a token plays by convention: the scenario whose name begins the token.
 * @param separator the text that follows the name in a token
 */
export function scenarioByName(
  scenarios: Readonly<Record<string, Scenario>>,
  separator: string,
): (token: string) => Scenario | undefined {
  const beginning = new RegExp(`^(${Object.keys(scenarios).join("|")})${separator}`);
  return (token) => {
    const name = beginning.exec(token)?.[1];
    return name === undefined ? undefined : scenarios[name];
  };
}

function isRefusing({ scenario }: ScenarioState): boolean {
  return scenario.fault === "refuse-connections";
}

/** Hashes a token to a number from 0 to 1, evenly distributed (FNV-1a with the finalizer of MurmurHash3). */
function tokenShare(token: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < token.length; at += 1) {
    hash = Math.imul(hash ^ token.charCodeAt(at), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return ((hash ^ (hash >>> 16)) >>> 0) / 0x1_0000_0000;
}
