/** A service that is connected: it registers a user with auth, signs the user in, and registers the device with push. */

import { createClient as createAuth } from "./generated/auth/client/index.ts";
import * as auth from "./generated/auth/sdk.gen.ts";
import { createClient as createPush } from "./generated/push/client/index.ts";
import * as push from "./generated/push/sdk.gen.ts";

const { GATEPOST_AUTH_URL = "", GATEPOST_PUSH_URL = "" } = process.env;
const { GATEPOST_INTERNAL_SECRET, GATEPOST_BACKEND_SECRET } = process.env;

const internal = createAuth({
  baseUrl: GATEPOST_AUTH_URL,
  auth: () => `internal:${GATEPOST_INTERNAL_SECRET}`,
});
const backend = createAuth({
  baseUrl: GATEPOST_AUTH_URL,
  auth: () => `backend:${GATEPOST_BACKEND_SECRET}`,
});

/** The user's tokens. @throws if the id or the phone number is taken */
async function register(id: string, phone: string) {
  const created = await auth.createIdentity({ client: internal, body: { id, phone } });
  if (created.error) throw new Error(`${created.error.code}: ${created.error.detail}`);
  const issued = await auth.generateTokens({ client: backend, body: { grant_type: "auth", auth_id: id } });
  if (issued.error) throw new Error(issued.error.error_description);
  return issued.data;
}

async function saveDevice(accessToken: string, token: string, expiration: string) {
  const client = createPush({ baseUrl: GATEPOST_PUSH_URL, auth: () => accessToken });
  const { error } = await push.savePushToken({ client, body: { token, expiration } });
  if (error) throw new Error(`${error.code}: ${error.detail}`);
}

const now = Date.now();
const { access_token } = await register(`u-${now}`, `+1202${2_000_000 + (now % 8_000_000)}`);
await saveDevice(access_token, `device-${now}`, "2035-01-20T12:00:00Z");
