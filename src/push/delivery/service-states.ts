/**
 * The states of a provider's services in this process: reports outcomes to the breaker of each, stores its decisions
 * for all processes, and adopts those of others.
 */
import { LRUCache } from "lru-cache";
import type { Logger } from "../../platform/observability/logger.ts";
import { sent } from "../providers/outcomes.ts";
import type { Outcome, PushProvider } from "../providers/provider.ts";
import { wholeProvider } from "../queue/provider-rows.ts";
import { Breaker, type Cause, type Failure, type Sent, type SharedState, type State } from "./breaker.ts";
import type { DeliveryRules, Random } from "./delivery-rules.ts";
import { type Fault, faultOf } from "./faults.ts";
import { type ProcessPause, ProcessPauses } from "./process-pauses.ts";
import type { ProviderPauses } from "./provider-pauses.ts";

/**
 * Services that are remembered. One that is forgotten begins a new streak, and adopts its stored pause with the next
 * chunk.
 */
const maxServices = 1_000;

interface Dependencies {
  readonly provider: PushProvider;
  readonly pauses: ProviderPauses;
  readonly rules: DeliveryRules;
  readonly random: Random;
  readonly logger: Logger;
}

/** The breaker of a service. */
interface Service {
  readonly breaker: Breaker;
  /** Resolves when its decisions are stored; undefined: nothing is being stored. */
  storing: Promise<void> | undefined;
  /** When its state was last stored, by `performance.now()`: what was read before that is out of date. */
  storedAt: number;
}

/** A service that this process cannot use, by what may be its own fault. */
interface OwnFault {
  readonly provider: string;
  readonly origin?: string;
  readonly cause: Fault;
  readonly reason: string;
  /** Whether no process can, so that it is paused for all. */
  readonly isShared: boolean;
}

export class ServiceStates {
  readonly #deps: Dependencies;
  readonly #services = new LRUCache<string, Service>({ max: maxServices });
  readonly #own: ProcessPauses;
  readonly selfTest: SelfTest;
  /** Whether the provider has responded, and the chunks that wait for that could not be made READY. */
  #hasUnstoredResponse = false;

  constructor(dependencies: Dependencies) {
    this.#deps = dependencies;
    this.#own = new ProcessPauses(dependencies.rules, dependencies.random);
    this.selfTest = new SelfTest(dependencies.provider);
  }

  ownFaults(): OwnFault[] {
    const provider = this.#deps.provider.name;
    return this.#own.all().map(([service, { fault: cause, reason, isShared }]) => ({
      provider,
      ...originOf(service),
      ...{ cause, reason, isShared },
    }));
  }

  /** Whether chunks may be taken: this process does not leave them to others. It finds out whether its fault is gone. */
  async mayTake(): Promise<boolean> {
    if (this.#own.size === 0) return true;
    await this.load();
    const whole = this.#own.get(wholeProvider);
    // A self-test uses no user's token, so it does not show whose tokens the provider takes.
    const isTestable = whole?.cause !== "foreign" && this.#deps.provider.selfTest !== undefined;
    if (whole && isTestable && performance.now() >= whole.until) await this.#tryAgain(whole);
    const now = performance.now();
    const { evidenceMs } = this.#deps.rules;
    // There was nothing to send that could have shown it. Messages that fail then are tried again; refused ones are not.
    for (const [service, { cause, until }] of this.#own.own())
      if (cause === "unavailable" && now - until > evidenceMs) await this.#endOwn(service);
    // Where one of several services is at fault, others respond.
    if ([...this.#services.values()].some(({ breaker }) => breaker.isHealthy(now))) return true;
    return this.#own.own().every(([, { until }]) => now >= until);
  }

  async #tryAgain({ cause, fault, reason }: ProcessPause): Promise<void> {
    const outcome = asServiceOutcome((await this.selfTest.run()) ?? sent);
    if (isPassed(outcome)) {
      await this.#endOwn(wholeProvider);
      await this.#endRefusal();
      return this.load();
    }
    // Of a provider that fails by now, nothing new is known.
    const isNews = outcome.kind !== "sent" && faultOf(outcome) !== undefined;
    const shown = isNews
      ? { cause: causeOf(outcome), fault: faultOf(outcome), reason: outcome.reason }
      : { cause, fault, reason };
    await this.#pause(wholeProvider, { ...shown, afterMs: 0 });
  }

  state(service: string): State {
    return this.#of(service).breaker.state(performance.now());
  }

  /** Milliseconds until the service may be probed; 0 if it is not paused, or other processes may use one of several. */
  pausedMs(service: string): number {
    if (service !== wholeProvider && this.#own.get(service)?.isShared === false) return 0;
    return this.#of(service).breaker.pausedMs(performance.now());
  }

  /** Whether the next message of the service may be sent. A message that is admitted must be reported. */
  admits(service: string): boolean {
    return this.#of(service).breaker.admits(performance.now());
  }

  /** Whether the service has shown lately that it works, so that a message's failure is the message's own. */
  isHealthy(service: string): boolean {
    return this.#of(service).breaker.isHealthy(performance.now());
  }

  /** Why the service is paused or being probed; undefined: it is not. */
  causeOf(service: string): Cause | undefined {
    return this.#of(service).breaker.cause;
  }

  /** Whether the service refuses our credentials, project or topic, or most users' tokens. */
  refuses(service: string): boolean {
    const cause = this.causeOf(service);
    return cause === "foreign" || cause === "refused";
  }

  /** @param sent when, on the clock of `performance.now()` */
  report(service: string, userId: string, outcome: Outcome, sent: Sent): void {
    const known = this.#of(service);
    const { breaker } = known;
    const now = performance.now();
    const wasQuiet = !breaker.isHealthy(now);
    const verdict = breaker.report(outcome, userId, now, sent);
    const isNews = wasQuiet || (this.#hasUnstoredResponse && known.storing === undefined);
    const isResponse = service === wholeProvider && isNews && breaker.isHealthy(now);
    if (verdict === undefined && !isResponse) return;
    const store =
      typeof verdict === "object" ? this.#pause(service, verdict) : this.#storeResponse(service, verdict);
    const storing = Promise.all([known.storing, store]).then(() => {
      known.storedAt = performance.now();
      if (known.storing === storing) known.storing = undefined;
    });
    known.storing = storing;
  }

  /** Adopts the states that all processes share, before a chunk is sent. */
  async load(): Promise<void> {
    const { pauses, provider } = this.#deps;
    // It is not stored which of several services has responded.
    const isWhole = provider.serviceOf === undefined;
    const asOf = performance.now();
    const [shared, agoMs] = await Promise.all([
      pauses.load(),
      isWhole ? pauses.lastResponseAgoMs() : undefined,
    ]);
    const now = performance.now();
    if (agoMs !== undefined) this.#of(wholeProvider).breaker.respondedToOthers(now - agoMs);
    const others = [...this.#services.keys()].filter((service) => !shared.has(service));
    for (const [service, state] of shared) this.#adopt(service, state, now, asOf);
    for (const service of others) this.#adopt(service, unpaused, now, asOf);
  }

  /** Asks the provider itself whether it accepts our credentials again. @returns whether messages may be tried */
  async passesSelfTest(): Promise<boolean> {
    const outcome = await this.selfTest.run();
    if (outcome === undefined || isPassed(outcome)) return true;
    this.#reportSelfTest(outcome);
    return false;
  }

  /**
   * Asks at the start of the process. A refusal pauses the provider before a message meets it; acceptance ends a
   * pause for refused credentials, since they have been put right.
   */
  async checkCredentials(): Promise<void> {
    const { provider, logger } = this.#deps;
    try {
      const outcome = await this.selfTest.run();
      if (outcome === undefined) return;
      if (isPassed(outcome)) await this.#endRefusal();
      else if (asServiceOutcome(outcome).kind === "refused") this.#reportSelfTest(outcome);
    } catch (err) {
      logger.warn(
        { err, provider: provider.name },
        "The credentials of a push provider could not be checked yet",
      );
    }
  }

  async #endRefusal(): Promise<void> {
    if (await this.#deps.pauses.endRefusal()) this.#logRecovery(wholeProvider);
  }

  #reportSelfTest(outcome: Outcome): void {
    const sent = { at: performance.now(), hasFailedBefore: false };
    this.report(wholeProvider, "", asServiceOutcome(outcome), sent);
  }

  /** Resolves when the decisions so far are stored, or could not be. */
  async stored(): Promise<void> {
    await Promise.all([...this.#services.values()].map(({ storing }) => storing));
  }

  #of(service: string): Service {
    let known = this.#services.get(service);
    if (known === undefined) {
      known = { breaker: new Breaker(this.#deps.rules), storing: undefined, storedAt: 0 };
      this.#services.set(service, known);
    }
    return known;
  }

  /** Adopts a stored state, unless this process has a newer one, which may not be stored yet. @param asOf when it was read */
  #adopt(service: string, state: SharedState, now: number, asOf: number): void {
    const { breaker, storing, storedAt } = this.#of(service);
    if (storing === undefined && storedAt < asOf) breaker.adopt(this.#own.stateOf(service, state, now), now);
  }

  async #pause(service: string, failure: Failure): Promise<void> {
    const { pauses, provider, logger } = this.#deps;
    const { reason, cause, fault } = failure;
    const { breaker } = this.#of(service);
    try {
      const pause = await pauses.record(service, failure);
      const now = performance.now();
      const own = fault && this.#own.add(service, fault, failure, now);
      if (own && !pause) {
        breaker.adopt(this.#own.stateOf(service, unpaused, now), now);
        if (!own.isLogged) logOwnPause(logger, own, { provider: provider.name, ...originOf(service) });
        own.isLogged = true;
      }
      if (!pause) return;
      const { isNew, failures, ...shared } = pause;
      breaker.adopt(this.#own.stateOf(service, shared, now), now);
      if (!isNew) return;
      const pausedSeconds = Math.ceil(shared.pausedMs / 1000);
      const fields = { provider: provider.name, ...originOf(service), reason, failures, pausedSeconds };
      if (cause === "unavailable") {
        logger.warn(fields, "The push provider fails, so sending to it is paused");
      } else {
        logger.error(
          fields,
          "The push provider refuses us: check its credentials, project and topic in the settings",
        );
      }
    } catch (err) {
      logger.warn({ err, provider: provider.name }, "The pause of a push provider could not be stored");
    }
  }

  /** Stores that the service has recovered, or else that it has responded after a silence. */
  async #storeResponse(service: string, verdict: "recovered" | undefined): Promise<void> {
    const { pauses, provider, logger } = this.#deps;
    try {
      if (verdict === undefined) {
        await pauses.recordResponse();
        this.#hasUnstoredResponse = false;
      } else {
        await this.#endOwn(service);
        if (await pauses.recordSuccess(service)) this.#logRecovery(service);
      }
    } catch (err) {
      this.#hasUnstoredResponse ||= verdict === undefined;
      logger.warn({ err, provider: provider.name }, "The end of a push provider's pause could not be stored");
    }
  }

  #logRecovery(service: string): void {
    const { provider, logger } = this.#deps;
    logger.info({ provider: provider.name, ...originOf(service) }, "The push provider works again");
  }

  async #endOwn(service: string): Promise<void> {
    const own = this.#own.get(service);
    if (!own) return;
    const { pauses, provider, logger } = this.#deps;
    this.#own.end(service);
    await pauses.canUse(service);
    const fields = { provider: provider.name, ...originOf(service), cause: own.fault };
    if (!own.isShared) logger.info(fields, "This process uses the push provider again");
  }
}

/** What an operator is to look at. */
const remedies: Readonly<Record<Fault, string>> = {
  credentials: "its key, project and topic in the settings",
  clock: "its clock",
  network: "its network: routes, name servers and firewalls",
};

function logOwnPause(logger: Logger, { fault, reason }: ProcessPause, fields: object): void {
  const level = fault === "network" ? "warn" : "error";
  const what = "This process alone cannot use the push provider and leaves its messages to others";
  logger[level]({ ...fields, cause: fault, reason }, `${what}: check ${remedies[fault]}`);
}

const unpaused: SharedState = { cause: undefined, pausedMs: 0, since: "" };

/** The log field that names a service which is one of several; each of them is the origin of a Web Push service. */
function originOf(service: string): { readonly origin?: string } {
  return service === wholeProvider ? {} : { origin: service };
}

/** The self-test of a provider: whether it accepts our credentials. A test that is running serves all callers. */
export class SelfTest {
  readonly #provider: PushProvider;
  #running: Promise<Outcome> | undefined;

  constructor(provider: PushProvider) {
    this.#provider = provider;
  }

  /** Runs the test, or waits for the one that is running. @returns undefined if the provider has no self-test */
  async run(): Promise<Outcome | undefined> {
    this.#running ??= this.#provider.selfTest?.().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /**
   * Checks a `refused` outcome of one message. If the provider accepts our credentials, the message has failed by
   * itself. If it refuses them, the outcome is confirmed. If the test itself fails, its outcome is the message's.
   */
  async confirm(refused: Extract<Outcome, { kind: "refused" }>): Promise<Outcome> {
    const outcome = await this.run();
    if (outcome === undefined) return refused;
    if (isPassed(outcome)) return { kind: "retry", isOwn: true, reason: refused.reason };
    return asServiceOutcome(outcome).kind === "refused" ? { ...refused, isConfirmed: true } : outcome;
  }
}

/** Whether the provider has accepted our credentials. */
function isPassed({ kind }: Outcome): boolean {
  return kind === "sent" || kind === "dead" || kind === "failed" || kind === "blocked";
}

function causeOf({ kind }: Outcome): Cause {
  return kind === "refused" ? kind : "unavailable";
}

/** The outcome of a self-test, as one of the service: a self-test uses no user's token, so a refusal is about us. */
function asServiceOutcome(outcome: Outcome): Outcome {
  if (outcome.kind !== "foreign" && outcome.kind !== "refused") return outcome;
  const { kind, reason } = outcome;
  if (kind === "refused") return { ...outcome, isConfirmed: true };
  return { kind: "refused", isConfirmed: true, reason };
}
