/** What a fault is: what is done to a deployment, and whom it concerns. */
import type { Ledger } from "./ledger.ts";
import type { World, WorldOptions } from "./world.ts";

export interface Scene {
  readonly world: World;
  /** Takes what the fault itself finds wrong, too. */
  readonly ledger: Ledger;
  /** Whether it is played for continuous integration, in seconds. */
  readonly isShort: boolean;
}

export interface Fault {
  readonly name: string;
  /** What is done, as it is printed when it begins. */
  readonly what: string;
  /** Whether it belongs to the short form. */
  readonly short: boolean;
  /** Whether it concerns everybody, or only others than the bystander. */
  readonly concerns: "everybody" | "others";
  /** A deployment of its own, if it cannot be played on that of the others. Faults with the same function share one. */
  world?(): WorldOptions;
  /** Why it cannot be played on this machine; undefined if it can. */
  impossible?(): string | undefined;
  /** How often the full form plays it; once unless given. */
  readonly rounds?: number;
  /** Plays it. Resolves at its end, from which the recovery counts. */
  play(scene: Scene): Promise<void>;
  /**
   * Looks at what no request shows. It is called at the fault's end; what it returns is called again and again, and
   * resolves to whether that has recovered too.
   */
  recovery?(scene: Scene): () => Promise<boolean>;
  /** Under load still, once all has recovered: looks at what it has left behind, and clears up. */
  settle?(scene: Scene): Promise<void>;
}
