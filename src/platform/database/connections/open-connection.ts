import { sqlState } from "../../base/database-errors.ts";
import { Connection, type ConnectionOptions, type OnClose } from "./connection.ts";

const spaces = /[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000]/gu;
const mappedToNothing = /\u00ad|\u034f|\u1806|[\u180b-\u180d]|\u200c|\u200d|\u2060|[\ufe00-\ufe0f]|\ufeff/gu;

/** What SASLprep makes of a password that it does not forbid (RFC 4013 section 2). */
function prepared(password: string): string {
  return password.replaceAll(spaces, " ").replaceAll(mappedToNothing, "").normalize("NFKC");
}

/** By password: the form that a server took last. */
const taken = new Map<string, string>();

/** SQLSTATEs of a refused user or password: class 28, and that of PgBouncer (1.18). */
const refusals = /^28|^08P01$/;

/** Makes a connection and opens it; with a password that was renewed meanwhile where the first one is refused. */
export async function openConnection(options: ConnectionOptions, onClose: OnClose): Promise<Connection> {
  const { password = "" } = options.client;
  try {
    return await openWith(password, options, onClose);
  } catch (error) {
    const renewed = refusals.test(sqlState(error) ?? "") ? options.renewPassword?.(password) : undefined;
    if (renewed === undefined) throw error;
    return openWith(renewed, options, onClose);
  }
}

/**
 * SCRAM wants a password as SASLprep makes it. The other ways to sign in want it as it is, and so does PostgreSQL's SCRAM
 * where SASLprep forbids it. So where one form is refused, the other is tried.
 */
async function openWith(password: string, options: ConnectionOptions, onClose: OnClose): Promise<Connection> {
  const forms = new Set([taken.get(password) ?? prepared(password), prepared(password), password]);
  let refusal: unknown;
  for (const form of forms) {
    const connection = new Connection({ ...options, client: { ...options.client, password: form } }, onClose);
    try {
      await connection.open();
      if (forms.size > 1) taken.set(password, form);
      return connection;
    } catch (error) {
      if (sqlState(error) !== "28P01") throw error;
      refusal = error;
    }
  }
  throw refusal;
}
