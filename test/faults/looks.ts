/** Introspection over every protocol in turn, of every process. */
import { setTimeout } from "node:timers/promises";
import { type Introspector, introspectors, refusal } from "../support/introspectors.ts";
import type { Member, World } from "./world.ts";

export interface Look {
  readonly protocol: string;
  /** `failed`: it was neither decided nor refused, or hung. */
  readonly outcome: "active" | "inactive" | "refused" | "failed";
}

/** Milliseconds that a look may take: longer than any time limit of the product. */
const patienceMs = 15_000;

export class Looks {
  readonly #headers: { readonly authorization: string };
  /** The introspectors of each process: one that was started again has other ports. */
  readonly #introspectors = new WeakMap<Member["process"], readonly Introspector[]>();
  #turn = 0;

  constructor({ credentials }: World) {
    this.#headers = { authorization: credentials.internal };
  }

  async at({ process }: Member, token: string): Promise<Look> {
    const all = this.#introspectors.get(process) ?? introspectors(process);
    this.#introspectors.set(process, all);
    this.#turn += 1;
    const introspector = all[this.#turn % all.length];
    if (!introspector) throw new Error("there is no protocol");
    const { protocol } = introspector;
    try {
      const found = await Promise.race([
        introspector.ask(token, { headers: this.#headers }),
        setTimeout(patienceMs, undefined, { ref: false }),
      ]);
      if (found === undefined) return { protocol, outcome: "failed" };
      return { protocol, outcome: found.active ? "active" : "inactive" };
    } catch (error) {
      const status = await refusal(Promise.reject(error)).catch(() => undefined);
      return { protocol, outcome: status === 503 ? "refused" : "failed" };
    }
  }
}
