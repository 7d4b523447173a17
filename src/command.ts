/** How a command for operators ends where it cannot do its work. */
import { databaseFailure } from "./platform/database/failure.ts";
import { exitBadSettings, SettingsError } from "./platform/settings/settings.ts";

/** Does a command's work. Bad settings, or a database that cannot be used, end it with a sentence and an exit code. */
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
