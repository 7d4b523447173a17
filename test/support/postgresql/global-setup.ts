/** For vitest: a PostgreSQL server is there before the first worker starts, and goes when the last has ended. */
import { dropTemplateOfRun } from "../backends.ts";
import { postgresUrl, providePostgresql } from "./server.ts";

export default async function setup(): Promise<() => Promise<void>> {
  const stop = await providePostgresql();
  return async () => {
    if (postgresUrl()) await dropTemplateOfRun();
    await stop();
  };
}
