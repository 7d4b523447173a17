import { type ErrorKind, ServiceError } from "../../platform/base/errors.ts";
import { AuthErrorKinds } from "../errors.ts";
import type { Confirmed } from "../tokens/confirmed.ts";
import type { Identities } from "./identities.ts";

/**
 * What ends authorizations is answered once its end is confirmed. So are a deletion that finds no identity and a
 * creation that finds one: an earlier try may have done it, and have been answered 503.
 */
export function confirmedIdentities(identities: Identities, confirmed: Confirmed): Identities {
  async function ended(change: Promise<void>): Promise<void> {
    try {
      await change;
    } catch (error) {
      if (isOf(error, [AuthErrorKinds.identityNotFound])) await confirmed.ended("earlier");
      throw error;
    }
    await confirmed.ended("own");
  }
  return {
    ...identities,
    async create(id, fields) {
      try {
        return await identities.create(id, fields);
      } catch (error) {
        if (isOf(error, conflicts)) await confirmed.stored();
        throw error;
      }
    },
    delete: (id) => ended(identities.delete(id)),
    setPassword: (id, password) => ended(identities.setPassword(id, password)),
  };
}

const conflicts = [
  AuthErrorKinds.identityIdTaken,
  AuthErrorKinds.identityPhoneTaken,
  AuthErrorKinds.identityEmailTaken,
];

function isOf(error: unknown, kinds: readonly ErrorKind[]): boolean {
  return error instanceof ServiceError && kinds.includes(error.kind);
}
