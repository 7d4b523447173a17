/** How a command for operators ends where it cannot do its work. */
import { databaseFailure } from "./platform/database/failure.ts";
import { exitBadSettings, SettingsError } from "./platform/settings/settings.ts";

/**
 * Does the work of a command. Wrong settings, and a database that cannot be used, end the process with a sentence on
 * standard error and a code that says which of the two; anything else is a defect, and is thrown.
 */
export async function runCommand(work: () => Promise<void>): Promise<void> {
  // The deadlines of the database keep no process alive.
  const waiting = setInterval(() => undefined, 60_000);
  try {
    await work();
  } catch (error) {
    const reason = error instanceof SettingsError ? error.message : databaseFailure(error);
    if (reason === undefined) throw error;
    process.stderr.write(`${reason}\n`);
    process.exitCode = error instanceof SettingsError ? exitBadSettings : 1;
  } finally {
    clearInterval(waiting);
  }
}
