import { eq, type SQL, sql } from "drizzle-orm";
import type { Clock } from "../../platform/base/clock.ts";
import { violatedUnique } from "../../platform/base/database-errors.ts";
import { invalidInput } from "../../platform/base/errors.ts";
import { arrayLiteral, type Database } from "../../platform/database/database.ts";
import { type BatchedLookup, batched } from "../../platform/database/sql/batched-lookup.ts";
import { names, nullable, text } from "../../platform/database/sql/readers.ts";
import { computed, rows, selection } from "../../platform/database/sql/statements.ts";
import { noRequest, originFields, type RequestOrigin } from "../../platform/messaging/outbox.ts";
import { identityNotFound } from "../errors.ts";
import { AuthEvents, recordEvent } from "../events.ts";
import { hashingLimit, hashSecret } from "../password-hashing/argon2id.ts";
import { clients, identities } from "../schema.ts";
import { endIdentity } from "../tokens/end-authorizations.ts";
import {
  checkFields,
  comparedEmail,
  conflictOf,
  type Identity,
  type IdentityFields,
  idOfClient,
} from "./identity.ts";
import { normalisePassword, passwordProblem } from "./password.ts";
import { canonicalPhone } from "./phone.ts";

export type Identities = ReturnType<typeof createIdentities>;

/** Operations on identities. An id, phone or e-mail that another identity has is a conflict. */
export function createIdentities(db: Database, clock: Clock) {
  const now = () => new Date(clock.now());
  const named = findByUsername(db);

  async function findOne(where: ReturnType<typeof sql>): Promise<Identity | undefined> {
    const [found] = await db.select().from(identities).where(where).limit(1);
    return found;
  }

  /** Runs the change and its event in one transaction; a violated unique index becomes a conflict. */
  async function change<T>(work: (tx: Database) => Promise<T>): Promise<T> {
    try {
      return await db.transaction(work);
    } catch (error) {
      throw conflictOf(violatedUnique(error)) ?? error;
    }
  }

  async function recordUpdate(tx: Database, id: string, changed: readonly string[]): Promise<void> {
    const changedFields = sql`to_jsonb(${arrayLiteral(changed)}::text[])`;
    const fields = { identityId: idOf(id), changedFields };
    await tx.execute(recordEvent(AuthEvents.identityUpdated, fields, { at: now() }));
  }

  return {
    create: (id: string, fields: IdentityFields & { readonly phone: string }): Promise<Identity> =>
      change(async (tx) => {
        const { phone = fields.phone, email = null, metadata = null } = checkFields(fields);
        const at = now();
        const row = { id, phone, email, metadata, createdAt: at, updatedAt: at };
        if (await isActingClient(tx, id)) throw idOfClient();
        const [identity] = await tx.insert(identities).values(row).returning();
        if (!identity) throw new Error("an insert returned nothing");
        await tx.execute(recordEvent(AuthEvents.identityCreated, { identityId: idOf(id) }, { at }));
        return identity;
      }),

    /** @throws identity_not_found */
    async get(id: string): Promise<Identity> {
      const identity = await findOne(sql`${identities.id} = ${id}`);
      if (!identity) throw identityNotFound("id");
      return identity;
    },

    /** @param phone in any spelling; undefined is returned for text that is no phone number */
    async findByPhone(phone: string): Promise<Identity | undefined> {
      const canonical = canonicalPhone(phone);
      const found = canonical ? await named(canonical) : undefined;
      // Where no identity has the phone, it may be the id of one.
      return found?.phone === canonical ? found : undefined;
    },

    /** @param username phone, e-mail or id; where it could be several, the first of these that an identity has */
    findByUsername: named,

    /** @throws identity_not_found */
    async update(id: string, fields: IdentityFields): Promise<void> {
      const stored = fields.phone === undefined ? undefined : await findOne(sql`${identities.id} = ${id}`);
      const checked = checkFields(fields, stored?.phone);
      await change(async (tx) => {
        const updated = await tx
          .update(identities)
          .set({ ...checked, updatedAt: now() })
          .where(eq(identities.id, id))
          .returning({ id: identities.id });
        if (updated.length === 0) throw identityNotFound("id");
        await recordUpdate(tx, id, Object.keys(checked));
      });
    },

    /** Deletes the identity and ends its authorizations. @throws identity_not_found */
    delete: (id: string, origin = noRequest): Promise<void> =>
      change(async (tx) => {
        const deleted = await tx
          .delete(identities)
          .where(eq(identities.id, id))
          .returning({ id: identities.id });
        if (deleted.length === 0) throw identityNotFound("id");
        await endIdentity(tx, id, "IDENTITY_DELETED", origin);
        const fields = { identityId: idOf(id), ...originFields(origin) };
        await tx.execute(recordEvent(AuthEvents.identityDeleted, fields, { at: now() }));
      }),

    /**
     * Ends all authorizations, but for one that is kept. @throws identity_not_found, for an operator
     * @param keptId the authorization that is kept; none unless given
     */
    endAuthorizations: (
      id: string,
      reason: "USER" | "OPERATOR",
      origin: RequestOrigin,
      keptId?: string,
    ): Promise<void> =>
      change(async (tx) => {
        const one = tx.select({ id: identities.id }).from(identities).where(eq(identities.id, id));
        if ((await one.for("no key update")).length === 0) {
          // A user who was deleted at this moment has none left.
          if (reason === "USER") return;
          throw identityNotFound("id");
        }
        await endIdentity(tx, id, reason, origin, keptId);
      }),

    /** Sets (or with null removes) the password and ends the authorizations. @throws identity_not_found, invalid_request */
    async setPassword(id: string, password: string | null, origin = noRequest): Promise<void> {
      const checked = password === null ? null : await checkedPassword(password);
      // Said before the work of hashing.
      if (!(await findOne(sql`${identities.id} = ${id}`))) throw identityNotFound("id");
      const passwordHash = checked === null ? null : await hashingLimit.run(() => hashSecret(checked));
      await change(async (tx) => {
        const updated = await tx
          .update(identities)
          .set({ passwordHash, updatedAt: now() })
          .where(eq(identities.id, id))
          .returning({ id: identities.id });
        if (updated.length === 0) throw identityNotFound("id");
        await endIdentity(tx, id, "PASSWORD_CHANGED", origin);
        await recordUpdate(tx, id, ["password"]);
      });
    },
  };
}

/** @throws invalid_request for one that is easy to guess */
async function checkedPassword(password: string): Promise<string> {
  const normalised = normalisePassword(password);
  const message = await passwordProblem(normalised);
  if (message !== undefined) throw invalidInput([{ pointer: "/body/password", message }]);
  return normalised;
}

/** Whether a client has the id that acts for no user, so that its tokens have it as `sub` (RFC 9068 section 5). */
async function isActingClient(tx: Database, id: string): Promise<boolean> {
  const acts = sql`${clients.clientId} = ${id} and 'client_credentials' = any(${clients.grantTypes})`;
  return (await tx.select({ clientId: clients.clientId }).from(clients).where(acts)).length > 0;
}

function idOf(id: string): SQL {
  return sql`${id}::text`;
}

const identity = names(identities, "i");
const emailKey = sql`lower(${identity.email} collate "C")`;
const found = selection({ ...identity, emailKey: computed(nullable(text), emailKey) });

/**
 * Looks an identity up by phone, e-mail or id; where a username could be several, by the first of these that an
 * identity has. A username has no NUL character.
 */
function findByUsername(db: Database): BatchedLookup<string, Identity> {
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
