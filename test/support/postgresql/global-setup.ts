/** For vitest: a PostgreSQL server is there before the first worker starts, and goes when the last has ended. */
import { providePostgresql } from "./server.ts";

export default (): Promise<() => Promise<void>> => providePostgresql();
