/**
 * Ends every authorization there is, of all users and clients: `npm run revoke-all -- --yes`. It is for a database that
 * was restored from a back-up, in which tokens are active that were revoked after it was made.
 */
import { setTimeout } from "node:timers/promises";
import { authMigrations } from "./auth/service.ts";
import { endAll } from "./auth/tokens/end-authorizations.ts";
import { longestLeaseMs } from "./platform/database/leases.ts";
import { openDatabase } from "./platform/database/open.ts";
import { resolveDatabaseSettings } from "./platform/database/settings.ts";
import { resolveServerSettings } from "./platform/settings/server.ts";
import { exitBadSettings, SettingsError, valueOrThrow } from "./platform/settings/settings.ts";
import { databaseFailure } from "./start-failure.ts";

const refusal = `This signs everybody out: it ends every authorization in the database of auth, for good.
If that is what you want: npm run revoke-all -- --yes
`;

// The deadlines of the database keep no process alive.
const waiting = setInterval(() => undefined, 60_000);
try {
  const { environment, dataDir } = valueOrThrow(resolveServerSettings(process.env));
  const settings = resolveDatabaseSettings(process.env, { environment, dataDir, service: "auth" });
  const database = await openDatabase(valueOrThrow(settings), authMigrations);
  try {
    if (process.argv.includes("--yes")) {
      const clients = await endAll(database.db);
      // Whatever a process has read from a standby before is out of date then.
      await setTimeout(longestLeaseMs);
      if (clients > 0) {
        process.stdout.write(
          `No token of ${clients} clients is active any more in ${database.description}.\n`,
        );
      } else {
        process.stderr.write(
          `There is no client in ${database.description}, so nothing was ended. Is it the one that was restored?\n`,
        );
        process.exitCode = 1;
      }
    } else {
      process.stderr.write(refusal);
      process.exitCode = 1;
    }
  } finally {
    await database.close();
  }
} catch (error) {
  const reason = error instanceof SettingsError ? error.message : databaseFailure(error);
  if (reason === undefined) throw error;
  process.stderr.write(`${reason}\n`);
  process.exitCode = error instanceof SettingsError ? exitBadSettings : 1;
} finally {
  clearInterval(waiting);
}
