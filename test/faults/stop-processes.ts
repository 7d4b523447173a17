import type postgres from "postgres";
import { codeOf } from "../../src/platform/base/error-code.ts";

/**
 * Stops all processes of a server of PostgreSQL where they stand, but that of the connection it is asked on.
 * @param admin of a superuser
 * @returns lets them go on
 */
export async function stopProcesses(admin: postgres.Sql): Promise<() => void> {
  const pids = new Set<number>();
  try {
    // The second look finds what was started between the first and the end of the postmaster.
    for (let look = 0; look < 2; look += 1) {
      const found = await processesOf(admin);
      for (const pid of found) pids.add(pid);
      signal(look === 0 ? found.slice(0, 1) : pids, "SIGSTOP");
    }
  } catch (error) {
    signal(pids, "SIGCONT");
    throw error;
  }
  return () => signal(pids, "SIGCONT");
}

/** Process ids of PostgreSQL, the postmaster first. */
async function processesOf(admin: postgres.Sql): Promise<number[]> {
  const [file] = await admin<{ text: string }[]>`select pg_read_file('postmaster.pid') as text`;
  const rows = await admin<{ pid: number }[]>`select pid from pg_stat_activity where pid <> pg_backend_pid()`;
  return [Number(file?.text.split("\n")[0]), ...rows.map(({ pid }) => pid)];
}

function signal(pids: Iterable<number>, name: NodeJS.Signals): void {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch (error) {
      if (codeOf(error) !== "ESRCH") throw error;
    }
  }
}
