/** Waits until servers show a beat. A host is looked at once at a time, however many beats are waited for. */
import { pause } from "../../base/loop.ts";
import type { Evidence } from "./leases.ts";

/** Milliseconds after which a host is looked at again while it lacks a beat that is waited for. */
const lookAgainMs = 10;
/** Milliseconds if it has all of them: another server behind it may lack one. */
const otherServerMs = 200;

interface AwaitedBeat {
  readonly number: number;
  /** The servers that have not shown it. */
  readonly missing: Set<string>;
  /** Aborted once no server is missing. */
  readonly shown: AbortController;
}

export class AwaitedBeats<Host> {
  readonly #hosts: readonly Host[];
  readonly #look: (host: Host) => Promise<Evidence>;
  readonly #awaited = new Set<AwaitedBeat>();
  readonly #followed = new Set<Host>();
  /** Aborted when a beat begins to be waited for, so that it is looked for at once. */
  #begun = new AbortController();

  /** @param look asks the server behind a host what it shows; an error counts as nothing that was shown */
  constructor(hosts: readonly Host[], look: (host: Host) => Promise<Evidence>) {
    this.#hosts = hosts;
    this.#look = look;
  }

  /** Resolves once each of the servers has shown the beat or a later one, or else after so many milliseconds. */
  async shown(number: number, servers: readonly string[], withinMs: number): Promise<void> {
    if (servers.length === 0 || withinMs <= 0) return;
    const awaited = { number, missing: new Set(servers), shown: new AbortController() };
    this.#awaited.add(awaited);
    this.#begun.abort();
    this.#begun = new AbortController();
    for (const host of this.#hosts) void this.#follow(host);
    await pause(withinMs, awaited.shown.signal);
    this.#awaited.delete(awaited);
  }

  async #follow(host: Host): Promise<void> {
    if (this.#followed.has(host)) return;
    this.#followed.add(host);
    while (this.#awaited.size > 0) {
      const begun = this.#begun.signal;
      const evidence = await this.#look(host).catch(() => undefined);
      if (evidence) this.#note(evidence);
      if (this.#awaited.size > 0) await pause(this.#isLacking(evidence) ? lookAgainMs : otherServerMs, begun);
    }
    this.#followed.delete(host);
  }

  #isLacking(evidence: Evidence | undefined): boolean {
    const shown = evidence?.beat ?? 0;
    return [...this.#awaited].some(({ number }) => number > shown);
  }

  #note({ server, beat }: Evidence): void {
    if (beat === null) return;
    for (const { number, missing, shown } of this.#awaited) {
      if (number > beat || !missing.delete(server) || missing.size > 0) continue;
      shown.abort();
    }
  }
}
