/** Who has a phone, and who gets it by signing up. */
import { randomUUID } from "node:crypto";
import { sql } from "drizzle-orm";
import { isOfKind } from "../../platform/base/errors.ts";
import type { Database } from "../../platform/database/database.ts";
import { names, number } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import { AuthErrorKinds } from "../errors.ts";
import type { Identities } from "../identities/identities.ts";
import { identities, identityEndings } from "../schema.ts";

interface PhoneHolder {
  readonly id: string;
  /** The latest ending of the identity; 0 if there was none. */
  readonly generation: number;
}

/** @param phone canonical */
export type FindPhoneHolder = (phone: string) => Promise<PhoneHolder | undefined>;

const identity = names(identities, "i");
const ending = names(identityEndings, "e");

const holder = selection({
  id: identity.id,
  generation: computed(
    number,
    sql`coalesce((select max(${ending.generation}) from ${identityEndings} e
      where ${ending.identityId} = ${identity.id}), 0)::float8`,
  ),
});

export function createFindPhoneHolder(db: Database): FindPhoneHolder {
  return async (phone) => {
    const [found] = await rows(
      db,
      holder,
      sql`select ${holder} from ${identities} i where ${identity.phone} = ${phone}`,
    );
    return found;
  };
}

/**
 * The id of who has the phone: of one that is made now, once however many sign up at the same time, or is there by now;
 * undefined if that one is gone again.
 */
export async function signUp(
  identities: Identities,
  find: FindPhoneHolder,
  phone: string,
): Promise<string | undefined> {
  const known = await find(phone);
  if (known) return known.id;
  try {
    return (await identities.create(randomUUID(), { phone })).id;
  } catch (error) {
    if (!isOfKind(error, [AuthErrorKinds.identityPhoneTaken])) throw error;
    return (await find(phone))?.id;
  }
}
