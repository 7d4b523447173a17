/** Ends every authorization of all users: `npm run revoke-all -- --yes`, for a database restored from a back-up. */
import { setTimeout } from "node:timers/promises";
import { authMigrations } from "./auth/service.ts";
import { endAll } from "./auth/tokens/end-authorizations.ts";
import { readArguments, runCommand } from "./command.ts";
import type { OpenDatabase } from "./platform/database/database.ts";
import { openDatabase } from "./platform/database/open.ts";
import { resolveDatabaseSettings } from "./platform/database/settings.ts";
import { longestLeaseMs } from "./platform/database/standbys/leases.ts";
import { resolveCommandSettings } from "./platform/settings/server.ts";
import { valueOrThrow } from "./platform/settings/settings.ts";

const usage = `npm run revoke-all -- --yes

Ends every authorization of all users, for good, after a back-up was restored: docs/operate/backup.md.
Exit codes: 0 done; 1 nothing was ended; 2 unknown arguments; 78 wrong settings.`;

const { values: asked } = readArguments({ usage, options: { yes: { type: "boolean" } } });

const refusal = `This signs everybody out: it ends every authorization in the database of auth, for good.
If that is what you want: npm run revoke-all -- --yes
`;

await runCommand(async () => {
  const { environment, dataDir } = valueOrThrow(resolveCommandSettings(process.env));
  const settings = resolveDatabaseSettings(process.env, { environment, dataDir, service: "auth" });
  const database = await openDatabase(valueOrThrow(settings), authMigrations);
  try {
    if (asked.yes) await revokeAll(database);
    else fail(refusal);
  } finally {
    await database.close();
  }
});

async function revokeAll({ db, description }: OpenDatabase): Promise<void> {
  const clients = await endAll(db, "operator command");
  // Whatever a process has read from a standby before is out of date then.
  await setTimeout(longestLeaseMs);
  if (clients > 0) {
    process.stdout.write(`No token of ${clients} clients is active any more in ${description}.\n`);
  } else {
    fail(`There is no client in ${description}, so nothing was ended. Is it the one that was restored?\n`);
  }
}

function fail(reason: string): void {
  process.stderr.write(reason);
  process.exitCode = 1;
}
