/**
 * What an error of the database means. The code decides, never the text. Drivers and the query builder wrap
 * errors in errors, so the code is searched for in the causes too.
 */

function* causes(thrown: unknown): Generator<object> {
  let error = thrown;
  for (let depth = 0; depth < 8 && typeof error === "object" && error !== null; depth += 1) {
    yield error;
    error = "cause" in error ? error.cause : undefined;
  }
}

function codeOf(thrown: unknown, pattern: RegExp): string | undefined {
  for (const error of causes(thrown)) {
    if ("code" in error && typeof error.code === "string" && pattern.test(error.code)) return error.code;
  }
  return undefined;
}

/** The five-character SQLSTATE of an error that PostgreSQL raised. None begins with E, as EPIPE of a socket does. */
export function sqlState(thrown: unknown): string | undefined {
  return codeOf(thrown, /^[0-9A-DF-Z][0-9A-Z]{4}$/);
}

/** Whether PostgreSQL has refused or ended the connection, and not a statement. */
export function endedConnection(thrown: unknown): boolean {
  return [...causes(thrown)].some((error) => "severity" in error && error.severity === "FATAL");
}

/** The name of the unique index or constraint that was violated; undefined for other errors. */
export function violatedUnique(thrown: unknown): string | undefined {
  if (sqlState(thrown) !== "23505") return undefined;
  for (const error of causes(thrown)) {
    // The member is constraint_name in postgres.js, constraint in PGlite.
    for (const name of ["constraint_name", "constraint"]) {
      const value = Object.getOwnPropertyDescriptor(error, name)?.value;
      if (typeof value === "string") return value;
    }
  }
  return undefined;
}

/**
 * Class 08 connection, 53 resources, 57P shutdown, 57014 cancelled by a timeout, 55P03 a lock that was not released in
 * time, 40001 and 40P01 a transaction that got in the way of another one, 25P03 one that has paused for too long, 25006
 * read-only (a standby).
 */
const unavailableStates = /^(08\w{3}|53\w{3}|57P\w{2}|57014|55P03|40001|40P01|25P03|25006)$/;
/** Codes of Node's sockets and of postgres.js. */
const unavailableCodes =
  /^(ECONN\w+|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|CONNECT_TIMEOUT|CONNECTION_\w+)$/;

/** Whether the error means that the database is unavailable, so that the caller may try again later. */
export function isDatabaseUnavailable(thrown: unknown): boolean {
  return codeOf(thrown, unavailableStates) !== undefined || codeOf(thrown, unavailableCodes) !== undefined;
}
