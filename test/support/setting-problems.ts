import { type SettingProblem, SettingsError } from "../../src/platform/settings/settings.ts";

/** The problems that a read throws; none if it throws nothing. */
export async function problemsOf(read: () => unknown): Promise<readonly SettingProblem[]> {
  try {
    await read();
    return [];
  } catch (error) {
    if (error instanceof SettingsError) return error.problems;
    throw error;
  }
}

/** Problems as lines, in the order in which they are reported. */
export async function problemLines(read: () => unknown): Promise<readonly string[]> {
  return (await problemsOf(read)).map(({ name, what }) => `${name} ${what}`);
}
