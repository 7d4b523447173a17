/** Programs that docs/clients shows: they ask over RPC whose token `ACCESS_TOKEN` is. */
import assert from "node:assert/strict";
import { createAccount, signIn } from "./accounts.ts";
import type { World } from "./language.ts";

/**
 * @param run runs the program with this in its environment, and returns what it writes: `active: <user>` or `not active`
 * @throws if it writes something else of a good token, or of what is none
 */
export async function checkIntrospection(
  { authUrl }: World,
  run: (env: Readonly<Record<string, string>>) => Promise<string>,
): Promise<void> {
  const account = await createAccount(authUrl);
  const { access_token } = await signIn(authUrl, account, "backend");
  assert.equal((await run({ ACCESS_TOKEN: access_token })).trim(), `active: ${account.user}`);
  assert.equal((await run({ ACCESS_TOKEN: "not-a-token" })).trim(), "not active");
}
