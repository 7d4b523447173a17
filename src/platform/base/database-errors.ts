/** What an error of the database means, by its code or that of one of its causes. */

export function* causes(thrown: unknown): Generator<object> {
  let error = thrown;
  for (let depth = 0; depth < 8 && typeof error === "object" && error !== null; depth += 1) {
    yield error;
    error = "cause" in error ? error.cause : undefined;
  }
}

/** The first code, from the error to its innermost cause, that matches the pattern. */
export function codeMatching(thrown: unknown, pattern: RegExp): string | undefined {
  for (const error of causes(thrown)) {
    if ("code" in error && typeof error.code === "string" && pattern.test(error.code)) return error.code;
  }
  return undefined;
}

/** The five-character SQLSTATE of an error that PostgreSQL raised. None begins with E, as a socket's EPIPE does. */
export function sqlState(thrown: unknown): string | undefined {
  return codeMatching(thrown, /^[0-9A-DF-Z][0-9A-Z]{4}$/);
}

/** Whether PostgreSQL has refused or ended the whole connection, and not only a statement. */
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
 * SQLSTATEs that mean that the database is unavailable. Class 08: connection; 53: resources; 57P: shutdown; 58: the
 * system under it, such as a failing disk. 57014: a statement was cancelled by a timeout; 55P03: a lock was not
 * released within the timeout; 40001 and 40P01: two transactions were in each other's way; 25P03: a transaction paused
 * for too long; 25006: read-only, as a standby is.
 */
const unavailableStates = /^(08\w{3}|53\w{3}|57P\w{2}|58\w{3}|57014|55P03|40001|40P01|25P03|25006)$/;
/** Codes of Node's sockets and of postgres.js. */
const unavailableCodes =
  /^(ECONN\w+|EPIPE|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|CONNECT_TIMEOUT|CONNECTION_\w+)$/;

/** Whether the error means that the database is unavailable, or refuses the login: try again later. */
export function isDatabaseUnavailable(thrown: unknown): boolean {
  return (
    codeMatching(thrown, unavailableStates) !== undefined ||
    codeMatching(thrown, unavailableCodes) !== undefined ||
    endedConnection(thrown)
  );
}

/** What is wrong with a database that is there, for its operator. */
const troubles: readonly (readonly [codes: RegExp, what: string])[] = [
  [/^(53100|ENOSPC)$/, "The disk of the database is full"],
  [/^53300$/, "The database takes no more connections"],
  [/^(55P03|CONNECTION_BUSY_LOCK)$/, "A lock in the database was not released in time"],
  [/^57014$/, "A statement took too long, and was cancelled"],
  [/^(40001|40P01)$/, "Two transactions were in each other's way"],
  [/^25006$/, "The database is read-only"],
  [/^57P0[1-3]$/, "The database is starting up or shutting down"],
  [/^CONNECTION_UNCONFIRMED$/, "No standby has confirmed a commit"],
  [/^CONNECTION_BUSY$/, "All connections of this process to the database are in use"],
];

/** A sentence for the log without its full stop; undefined where nothing says more than that it is away. */
export function databaseTrouble(thrown: unknown): string | undefined {
  return troubles.find(([codes]) => codeMatching(thrown, codes) !== undefined)?.[1];
}

/** Codes of errors of one statement or transaction, and of commits that no standby confirms: the database is there. */
const notAway = /^(57014|55P03|40001|40P01|25P03|CONNECTION_UNCONFIRMED)$/;

/** Whether the error means that the database cannot be reached, so that it is soon worth another try. */
export function isDatabaseAway(thrown: unknown): boolean {
  return isDatabaseUnavailable(thrown) && codeMatching(thrown, notAway) === undefined;
}
