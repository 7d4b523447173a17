/** Reading from standbys as strictly as from the primary, by leases. A row that a standby lacks proves nothing. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { every, type Loop } from "../../base/loop.ts";
import { arrayLiteral, type Reads, type StandbyConnections, type StandbyHost } from "../database.ts";
import { batched } from "../sql/batched-lookup.ts";
import { boolean, listOf, names, nullable, number, text } from "../sql/readers.ts";
import { serverStart } from "../sql/server-start.ts";
import { computed, type Field, onlyRow, prepared, rows, selection } from "../sql/statements.ts";
import { AwaitedBeats } from "./awaited-beats.ts";
import type { LeaseTable } from "./lease-table.ts";
import { type Beat, currentMoment, type Evidence, Leases, longestLeaseMs } from "./leases.ts";
import { SeenBeats } from "./seen-beats.ts";

/** Milliseconds between two beats where nobody needs one sooner. */
const beatMs = 400;
/** Milliseconds after which a standby that was never read from is reported. */
const neverReadMs = 5_000;
/** Milliseconds without a beat after which another process's row is removed; one that was held up makes it anew. */
const goneMs = 30_000;

/** The fields that a statement on a standby selects besides its own. */
type EvidenceFields = { readonly [Name in keyof Evidence]: Field<Evidence[Name]> };

export interface Standbys {
  /** Selected in each statement that {@link read} runs, so that they come from the same snapshot as its rows. */
  readonly evidence: EvidenceFields;
  /** Runs a query on a standby; undefined if none can be relied on now: then the primary is to be asked. */
  read<T extends Evidence>(query: (reads: Reads) => Promise<T>): Promise<T | undefined>;
  /**
   * Resolves once no process relies on a standby's state older than this call: each has a later commit, or leases ran
   * out.
   * @throws an error that means that the database is unavailable, if that commit is not confirmed
   */
  applied(): Promise<void>;
  /** Keeps the leases running. */
  start(): Loop;
}

interface WhyNotRead {
  readonly reason?: string;
  readonly err?: unknown;
}

interface Dependencies extends StandbyConnections {
  readonly table: LeaseTable;
  /** Called when a standby begins to be read from, when it no longer is, and soon after the start if it never was. */
  readonly report: (address: string, isRead: boolean, why?: WhyNotRead) => void;
}

export function createStandbys({ leases: primary, hosts, table, report }: Dependencies): Standbys {
  const leases = new Leases();
  const processId = randomUUID();
  const held = names(table, "held");
  const fields: EvidenceFields = {
    server: serverStart,
    // A standby that restarts itself after a crash may show an older state than before, as the same server.
    isStandby: computed(boolean, sql`pg_is_in_recovery() and current_setting('restart_after_crash') = 'off'`),
    beat: computed(
      nullable(number),
      sql`(select ${held.beat}::float8 from ${table} held where ${held.processId} = ${sql.raw(`'${processId}'`)})`,
    ),
  };
  const evidence = selection(fields);
  const beats = beatsOf(table, processId);
  const others = new SeenBeats();
  /** Hosts whose last statement could be relied on. */
  const readable = new Set<StandbyHost>();
  /** Whether a host was read from, as it was reported last. */
  const reported = new Map<StandbyHost, boolean>();
  const created = performance.now();
  let turn = 0;

  /** Commits a beat. @returns the beat, with the servers that any process may be reading from */
  async function sendBeat(): Promise<Beat> {
    const beat = leases.begin(currentMoment());
    const gone = others.unchangedFor(goneMs);
    const found = await rows(
      primary,
      beats.row,
      beats.statement({
        beat: beat.number,
        servers: arrayLiteral(beat.servers),
        goneIds: arrayLiteral(gone.map((one) => one.processId)),
        goneBeats: arrayLiteral(gone.map((one) => String(one.beat))),
      }),
    );
    leases.acknowledge(beat, currentMoment());
    const theirs = found.filter((one) => one.processId !== processId);
    others.saw(theirs);
    return { ...beat, servers: [...beat.servers, ...theirs.flatMap(({ servers }) => servers)] };
  }

  const nextBeat = batched<"beat", { settled: () => Promise<void> }>({
    load: async () => {
      const beat = await sendBeat();
      let settling: Promise<void> | undefined;
      const settled = () => {
        settling ??= settle(beat);
        return settling;
      };
      return new Map([["beat", { settled }]]);
    },
    maxQueries: 1,
  });

  const awaited = new AwaitedBeats(hosts, look);

  /** Resolves once each server that any process may read from has the beat, or no older lease can be running. */
  function settle({ number, sentAt, servers }: Beat): Promise<void> {
    return awaited.shown(number, servers, longestLeaseMs - (performance.now() - sentAt.monotonicMs));
  }

  async function look({ reads }: StandbyHost): Promise<Evidence> {
    const askedAt = currentMoment();
    const found = await onlyRow(reads, evidence, sql`select ${evidence}`);
    leases.observe(found, askedAt);
    return found;
  }

  function setReadable(host: StandbyHost, isReadable: boolean, why?: WhyNotRead): void {
    if (isReadable) readable.add(host);
    else readable.delete(host);
    const before = reported.get(host);
    if (before === isReadable) return;
    if (before === undefined && !isReadable && performance.now() - created < neverReadMs) return;
    reported.set(host, isReadable);
    report(host.address, isReadable, why);
  }

  async function examine(host: StandbyHost): Promise<void> {
    const askedAt = currentMoment();
    try {
      const found = await look(host);
      setReadable(host, leases.vouches(found, askedAt), { reason: reasonAgainst(found) });
    } catch (err) {
      setReadable(host, false, { err });
    }
  }

  return {
    evidence: fields,

    async read(query) {
      turn += 1;
      const host = [...readable][turn % readable.size];
      if (!host) return undefined;
      const askedAt = currentMoment();
      try {
        const found = await query(host.reads);
        if (leases.vouches(found, askedAt)) return found;
        setReadable(host, false, { reason: reasonAgainst(found) });
      } catch (err) {
        // Whatever it is, the primary can still be asked.
        setReadable(host, false, { err });
      }
      return undefined;
    },

    async applied() {
      await (await nextBeat("beat"))?.settled();
    },

    start: () =>
      every(
        beatMs,
        async () => {
          await nextBeat("beat");
          for (const host of hosts) void examine(host);
        },
        // The leases run out, and the primary is asked.
        () => undefined,
      ),
  };
}

function reasonAgainst({ isStandby, beat }: Evidence): string {
  if (!isStandby) return "it is no standby, or its setting restart_after_crash is not off";
  if (beat === null)
    return "it has no commit of this process: it follows another primary, or has not caught up";
  return "its newest commit of this process is too old";
}

type Parameters = "beat" | "servers" | "goneIds" | "goneBeats";

/** A beat; returns all rows as they were. With remote_apply the standbys then show all that was committed before it. */
function beatsOf(table: LeaseTable, processId: string) {
  const { processId: key, beat, servers } = names(table);
  const held = names(table, "held");
  const row = selection({
    processId: computed(text, sql`${key}::text`),
    beat: computed(number, sql`${beat}::float8`),
    servers: computed(listOf(text), sql`to_json(${servers})`),
  });
  const statement = prepared<Parameters>(
    ["beat", "servers", "goneIds", "goneBeats"],
    (given) => sql`
      with gone as (
        delete from ${table} where (${key}, ${beat}) in (
          select * from unnest(${given.goneIds}::uuid[], ${given.goneBeats}::bigint[]))
      ), beaten as (
        insert into ${table} as held (${key}, ${beat}, ${servers})
        select ${processId}::uuid, ${given.beat}::bigint, ${given.servers}::text[]
        where set_config('synchronous_commit', 'remote_apply', true) = 'remote_apply'
        on conflict (${key}) do update set ${beat} = excluded.${beat}, ${servers} = excluded.${servers}
        where ${held.beat} < excluded.${beat}
      )
      select ${row} from ${table}`,
  );
  return { row, statement };
}
