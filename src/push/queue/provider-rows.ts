/** The rows of `provider_states`: which is that of a provider as a whole, and whether it says that this one is paused. */
import { type SQL, sql } from "drizzle-orm";

/** The name, in `provider_states`, of a provider that is one service, and of the row with each provider's rate. */
export const wholeProvider = "";

/** Whether a row of `provider_states` is that of the provider as a whole. @param row the names of the row's columns */
export const isWholeProvider = (
  row: { readonly provider: SQL; readonly service: SQL },
  provider: unknown,
): SQL => sql`${row.provider} = ${provider} and ${row.service} = ${sql.raw(`'${wholeProvider}'`)}`;

/** No pause lasts longer. A row with a longer one was written before the database's clock was set back. */
const longestPause = sql`interval '2 hours'`;

/** Whether a row is that of a service that is paused at the moment. */
export const isPausedAt = (pausedUntil: SQL, now: SQL): SQL =>
  sql`(${pausedUntil} > ${now} and ${pausedUntil} < ${now} + ${longestPause})`;
