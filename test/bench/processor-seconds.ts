/** Seconds of processor time so far, as Linux tells them (proc_pid_stat(5)). */
import { readdirSync, readFileSync } from "node:fs";
import type postgres from "postgres";

/** Ticks in a second. */
const hertz = 100;

interface Stat {
  readonly parent: number;
  /** User and system time, in ticks: its own, and that of its children that have ended. */
  readonly ticks: number;
}

function statOf(pid: number): Stat | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    return { parent: Number(fields[1]), ticks };
  } catch {
    // It has ended since.
    return undefined;
  }
}

/** Of a process and of all that it has started, those that have ended included. */
export function processorSeconds(pid: number): number {
  const stats = new Map<number, Stat>();
  for (const name of readdirSync("/proc")) {
    const stat = /^\d+$/.test(name) ? statOf(Number(name)) : undefined;
    if (stat) stats.set(Number(name), stat);
  }
  const isBelow = (one: number): boolean => {
    const parent = stats.get(one)?.parent;
    return one === pid || (parent !== undefined && parent !== 0 && isBelow(parent));
  };
  let ticks = 0;
  for (const [one, stat] of stats) if (isBelow(one)) ticks += stat.ticks;
  return ticks / hertz;
}

/** Of a server of PostgreSQL on this machine. @param sql a connection to it */
export async function postgresSeconds(sql: postgres.Sql): Promise<number> {
  const [row] = await sql<{ pid: number }[]>`select pg_backend_pid() as pid`;
  const postmaster = statOf(row?.pid ?? 0)?.parent;
  if (postmaster === undefined) throw new Error("PostgreSQL is not on this machine");
  return processorSeconds(postmaster);
}
