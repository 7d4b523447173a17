/** Holds what is unfinished in a restored database until an operator decides, and lists it: `npm run hold`. */
import { readArguments, refuseArguments, runCommand } from "./command.ts";
import { systemClock } from "./platform/base/clock.ts";
import { ServiceError } from "./platform/base/errors.ts";
import { WakeUps } from "./platform/base/loop.ts";
import type { Database } from "./platform/database/database.ts";
import { openDatabase } from "./platform/database/open.ts";
import { resolveDatabaseSettings } from "./platform/database/settings.ts";
import { resolveCommandSettings } from "./platform/settings/server.ts";
import { valueOrThrow } from "./platform/settings/settings.ts";
import { pushMigrations } from "./push/database.ts";
import { createControl } from "./push/notifications/control-notification.ts";
import { countUnheld, holdUnfinished, listHeld } from "./push/notifications/hold.ts";

const usage = `npm run hold [-- --yes | --resume <id> | --cancel <id>]

After a back-up was restored (docs/operate/backup.md): lists the notifications that are held, and says how many more
are not finished. One of these changes them first, with the settings of a process of push:

  --yes            holds every notification that is not finished; before the first server starts on the database
  --resume <id>    sends the rest of one that is held; all: of all that are; can be repeated
  --cancel <id>    drops the rest of one that is held; all: of all that are; can be repeated

What was paused before the back-up stays paused, and is not held.
Exit codes: 0 done; 1 something could not be done; 2 wrong arguments; 78 wrong settings.`;

const several = { type: "string", multiple: true } as const;
const { values: wish } = readArguments({
  usage,
  options: { yes: { type: "boolean" }, resume: several, cancel: several },
});
if (Object.keys(wish).length > 1) refuseArguments("--yes, --resume and --cancel exclude each other.");

function fail(reason: string): void {
  process.stderr.write(reason);
  process.exitCode = 1;
}

const say = (line: string) => process.stdout.write(`${line}\n`);

/** Does it to each of the notifications that is held, and goes on after one to which it cannot be done. */
async function decide(
  db: Database,
  wanted: readonly string[] | undefined,
  act: (id: string) => Promise<void>,
  done: string,
): Promise<void> {
  if (!wanted) return;
  const held = new Set((await listHeld(db)).map(({ id }) => id));
  for (const id of wanted.includes("all") ? [...held] : wanted) {
    try {
      if (held.delete(id)) await act(id).then(() => say(`${done}: ${id}`));
      else fail(`${id} is not held. Nothing of it was changed.\n`);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      fail(`${id}: ${error.message}\n`);
    }
  }
}

async function list(db: Database, description: string): Promise<void> {
  const held = await listHeld(db);
  for (const { id, title, clientId, acceptedAt, expiresAt, sent, remaining, isPlanned } of held) {
    const by = clientId === null ? "a test run" : `by ${clientId}`;
    const left = isPlanned ? remaining : `${remaining} and those that are not found yet`;
    say(`${id}  accepted ${acceptedAt}, expires ${expiresAt}`);
    say(`  ${JSON.stringify(title)}, ${by}: ${sent} sent, remaining: ${left}`);
  }
  if (held.length === 0) say(`Nothing is held in ${description}.`);
  else
    say(
      `Held in ${description}: ${held.length}. They wait for npm run hold -- --resume <id>, or --cancel <id>.`,
    );
  say(
    `Not finished, and neither held nor paused: ${await countUnheld(db)}. npm run hold -- --yes holds them.`,
  );
}

await runCommand(async () => {
  const { environment, dataDir } = valueOrThrow(resolveCommandSettings(process.env));
  const settings = resolveDatabaseSettings(process.env, { environment, dataDir, service: "push" });
  const database = await openDatabase(valueOrThrow(settings), pushMigrations);
  const { db, description } = database;
  // A process of push has further chunks follow within half a minute.
  const control = createControl({
    db,
    wakeUps: new WakeUps(),
    follow: () => undefined,
    clock: systemClock,
  });
  try {
    if (!(await database.isMigrated())) {
      fail(
        `The tables of push in ${description} are missing or of an earlier version. First: npm run migrate\n`,
      );
      return;
    }
    if (wish.yes) {
      const forgotten = await holdUnfinished(db);
      if (forgotten > 0) say(`Replays of dead letters that were under way are forgotten: ${forgotten}.`);
    }
    await decide(db, wish.cancel, control.cancel, "Cancelled");
    await decide(db, wish.resume, control.resume, "Resumed");
    await list(db, description);
  } finally {
    await database.close();
  }
});
