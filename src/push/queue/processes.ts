/**
 * The processes that send, each with a row that it keeps alive; others judge it by what they read, and by their own
 * clocks. The row names the services that the process cannot use, so that all know when nobody can.
 */
import { randomUUID } from "node:crypto";
import { eq, sql } from "drizzle-orm";
import { every, type Loop } from "../../platform/base/loop.ts";
import { arrayLiteral, type Database, type Executor } from "../../platform/database/database.ts";
import { names } from "../../platform/database/sql/readers.ts";
import { prepared, rowCount, rows, selection } from "../../platform/database/sql/statements.ts";
import type { Logger } from "../../platform/observability/logger.ts";
import { deliveryChunks, processes } from "../schema.ts";
import { handOver } from "./give-back.ts";

/** Milliseconds between two beats of a process. */
const beatMs = 1_000;
/** Milliseconds for which the same beat was read, after which a process is dead. */
const deadAfterMs = 10_000;
/** Milliseconds between two reads, at most, for the time between them to count. */
const longestGapMs = 4_000;

/** A beat that was read, and since when, by `performance.now()`. */
interface Read {
  readonly beat: number;
  readonly since: number;
}

interface Dependencies {
  readonly db: Database;
  /** Runs statements that wait behind no others. */
  readonly leases: Executor;
  readonly logger: Logger;
  /** Called when chunks of a dead process may be taken. */
  readonly released: () => void;
}

const process = names(processes);
const beating = selection({ id: process.id, beat: process.beat });

/** Raises the beat of this process, writes what it cannot use, and reads the beats of all. */
const raiseBeat = prepared(
  ["id", "unusable"],
  ({ id, unusable }) => sql`
    with raised as (
      update ${processes} set ${process.beat} = ${process.beat} + 1, ${process.unusable} = ${unusable}::text[]
      where ${process.id} = ${id}::uuid)
    select ${beating} from ${processes}`,
);

/** Writes which services the process cannot use, before its beat does. Returns the others that can use this one. */
const writeUnusable = prepared(
  ["id", "unusable", "service"],
  ({ id, unusable, service }) => sql`
    with written as (
      update ${processes} set ${process.unusable} = ${unusable}::text[] where ${process.id} = ${id}::uuid)
    select 1 as one from ${processes}
    where ${process.id} <> ${id}::uuid and ${service}::text <> all(${process.unusable})`,
);

export class Processes {
  readonly #deps: Dependencies;
  #own: string | undefined;
  #joining: Promise<string> | undefined;
  #releasing: Promise<void> | undefined;
  #beating: Promise<void> | undefined;
  #others = new Map<string, Read>();
  #readAt = Number.NEGATIVE_INFINITY;
  readonly #unusable = new Set<string>();

  constructor(dependencies: Dependencies) {
    this.#deps = dependencies;
  }

  /** The id of this process in the database; its row is inserted if there is none. */
  async id(): Promise<string> {
    if (this.#own !== undefined) return this.#own;
    this.#joining ??= this.#join().finally(() => {
      this.#joining = undefined;
    });
    return this.#joining;
  }

  async #join(): Promise<string> {
    const id = randomUUID();
    await this.#deps.db.insert(processes).values({ id });
    this.#own = id;
    return id;
  }

  /**
   * Notes that this process cannot use a service. Of processes that note the same at once, each is to have locked a row.
   * @returns whether no living process can
   */
  async cannotUse(tx: Database, id: string, service: string): Promise<boolean> {
    this.#unusable.add(service);
    return (await rowCount(tx, writeUnusable({ id, unusable: this.#listed(), service }))) === 0;
  }

  /** Notes that it can. When it resolves, others read so; if it rejects, they do so from the next beat on. */
  async canUse(service: string): Promise<void> {
    const id = this.#own;
    if (!this.#unusable.delete(service) || id === undefined) return;
    // One that is under way would write the services of before.
    await this.#beating?.catch(() => undefined);
    await rowCount(this.#deps.db, writeUnusable({ id, unusable: this.#listed(), service }));
  }

  #listed(): string {
    return arrayLiteral([...this.#unusable]);
  }

  /** Takes note that the row is gone: others have taken this process for dead. The next {@link id} is another one. */
  forget(id: string): void {
    if (this.#own === id) this.#own = undefined;
  }

  /** Begins to beat, and to look for processes that have died. */
  start(): Loop {
    const { logger } = this.#deps;
    return every(
      beatMs,
      () => {
        this.#beating = this.#beat();
        return this.#beating;
      },
      (err) => logger.warn({ err }, "This process could not show that it lives, and will try again"),
    );
  }

  /** Gives back what the process still holds, and removes its row. */
  async leave(): Promise<void> {
    const id = this.#own;
    if (id === undefined) return;
    this.#own = undefined;
    await this.#release(id);
  }

  async #beat(): Promise<void> {
    const id = await this.id();
    const begun = performance.now();
    const found = await rows(this.#deps.leases, beating, raiseBeat({ id, unusable: this.#listed() }));
    if (found.every((row) => row.id !== id)) this.forget(id);
    // Nothing is known of the time in which this process, or the database, stood still.
    if (begun - this.#readAt > longestGapMs) this.#others.clear();
    const now = performance.now();
    this.#readAt = now;
    const others = found.filter((row) => row.id !== id);
    const known = this.#others;
    this.#others = new Map(
      others.map(({ id, beat }) => {
        const last = known.get(id);
        return [id, last?.beat === beat ? last : { beat, since: now }];
      }),
    );
    const dead = [...this.#others].filter(([, { since }]) => begun - since >= deadAfterMs);
    // Beside the beats, as it waits behind other statements.
    this.#releasing ??= this.#releaseAll(dead).finally(() => {
      this.#releasing = undefined;
    });
  }

  async #releaseAll(dead: readonly (readonly [string, Read])[]): Promise<void> {
    for (const [id, { beat }] of dead) {
      await this.#release(id, beat).catch((err: unknown) =>
        this.#deps.logger.warn({ err }, "The chunks of a process that has died could not be released yet"),
      );
    }
  }

  /** @param beat the row is left alone if it has another one by now */
  async #release(id: string, beat?: number): Promise<void> {
    const { db, logger, released } = this.#deps;
    const chunks = await db.transaction(async (tx) => {
      const [row] = await tx.select().from(processes).where(eq(processes.id, id)).for("update");
      if (!row || (beat !== undefined && row.beat !== beat)) return 0;
      const count = await handOver(tx, eq(deliveryChunks.processId, id));
      await tx.delete(processes).where(eq(processes.id, id));
      return count;
    });
    if (chunks === 0) return;
    if (beat !== undefined)
      logger.warn({ chunks }, "A process has died; the chunks that it held are sent by others");
    released();
  }
}
