/** The identity that a username names. Guesses come in floods, so the look-ups of many requests share a statement. */
import { type SQL, sql } from "drizzle-orm";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { type BatchedLookup, batched } from "../../platform/database/sql/batched-lookup.ts";
import { names } from "../../platform/database/sql/names.ts";
import { nullable, text } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import { identities } from "../schema.ts";
import { comparedEmail } from "./email.ts";
import type { Identity } from "./identity.ts";
import { canonicalPhone } from "./phone.ts";

const identity = names(identities, "i");
const emailKey = sql`lower(${identity.email} collate "C")`;
const found = selection({ ...identity, emailKey: computed(nullable(text), emailKey) });

/**
 * Looks an identity up by phone, e-mail or id; where a username could be several, by the first of these that an
 * identity has. A username has no NUL character.
 */
export function findByUsername(db: Database): BatchedLookup<string, Identity> {
  return batched({
    async load(usernames: readonly string[]) {
      const spellings = usernames.map(spellingsOf);
      // The statement finds the identities of all usernames of the batch, so each name is compared with its own kind.
      // An identity without an e-mail address has none to be found by.
      const byPhone = new Map<string, Identity>();
      const byEmail = new Map<string, Identity>();
      const byId = new Map<string, Identity>();
      for (const { emailKey, ...one } of await rows(db, found, withAnyOf(spellings))) {
        byPhone.set(one.phone, one);
        if (emailKey !== null) byEmail.set(emailKey, one);
        byId.set(one.id, one);
      }
      const named = spellings.flatMap(({ id, phone, email }): [string, Identity][] => {
        const one =
          (phone === undefined ? undefined : byPhone.get(phone)) ?? byEmail.get(email) ?? byId.get(id);
        return one ? [[id, one]] : [];
      });
      return new Map(named);
    },
  });
}

/** A username as an identity would have it. */
interface Spellings {
  readonly id: string;
  readonly phone: string | undefined;
  readonly email: string;
}

const spellingsOf = (username: string): Spellings => ({
  id: username,
  phone: canonicalPhone(username),
  email: comparedEmail(username),
});

function withAnyOf(spellings: readonly Spellings[]): SQL {
  const phones = spellings.flatMap(({ phone }) => (phone === undefined ? [] : [phone]));
  return sql`
    select ${found} from ${identities} i
    where ${identity.phone} = any(${arrayLiteral(phones)}::text[])
      or ${emailKey} = any(${arrayLiteral(spellings.map(({ email }) => email))}::text[])
      or ${identity.id} = any(${arrayLiteral(spellings.map(({ id }) => id))}::text[])`;
}
