import { isOfKind } from "../../platform/base/errors.ts";
import { AuthErrorKinds } from "../errors.ts";
import type { Confirmed } from "../tokens/confirmed.ts";
import type { Identities } from "./identities.ts";

/** What a change is refused with where another one has been made before: perhaps the first try of the same request. */
const refusals = [
  AuthErrorKinds.identityNotFound,
  AuthErrorKinds.identityIdTaken,
  AuthErrorKinds.identityPhoneTaken,
  AuthErrorKinds.identityEmailTaken,
];

/** Changes that are answered once they are confirmed, and so are those that find another one done. */
export function confirmedIdentities(identities: Identities, confirmed: Confirmed): Identities {
  const changed = <T>(change: () => Promise<T>) =>
    confirmed.confirmFound(
      change,
      (outcome) => outcome.status === "rejected" && isOfKind(outcome.reason, refusals),
    );

  /** Authorizations end with it; perhaps with the change that it finds done. */
  async function ended(change: () => Promise<void>): Promise<void> {
    try {
      await changed(change);
    } finally {
      await confirmed.untilStandbysKnow();
    }
  }

  return {
    ...identities,
    create: (id, fields) => changed(() => identities.create(id, fields)),
    update: (id, fields) => changed(() => identities.update(id, fields)),
    delete: (id, origin) => ended(() => identities.delete(id, origin)),
    endAuthorizations: (...request) => ended(() => identities.endAuthorizations(...request)),
    setPassword: (id, password, origin) => ended(() => identities.setPassword(id, password, origin)),
  };
}
