/** A back end: it registers a user with auth, signs the user in, and registers the user's device with push. */
import {
  authorizedFetch,
  createAuthClient,
  createPushClient,
  createSession,
  memoryStore,
} from "@gatepost/client";

const { GATEPOST_AUTH_URL: authUrl = "", GATEPOST_PUSH_URL: pushUrl = "" } = process.env;
const { GATEPOST_INTERNAL_SECRET = "", GATEPOST_BACKEND_SECRET = "" } = process.env;
const internal = { clientId: "internal", clientSecret: GATEPOST_INTERNAL_SECRET };
const backend = { clientId: "backend", clientSecret: GATEPOST_BACKEND_SECRET };

const now = Date.now();
const users = createAuthClient({ url: authUrl, credentials: internal });
const body = { id: `u-${now}`, phone: `+1202${2_000_000 + (now % 8_000_000)}` };
const { id } = await users.request("createIdentity", { body });

const tokens = createAuthClient({ url: authUrl, credentials: backend });
const session = createSession({ authUrl, client: backend, store: memoryStore() });
await session.begin(await tokens.request("generateTokens", { body: { grant_type: "auth", auth_id: id } }));

const fetch = authorizedFetch({ session, origins: [new URL(pushUrl).origin] });
const push = createPushClient({ url: pushUrl, fetch });
const device = { token: `device-${now}`, expiration: "2035-01-20T12:00:00Z" };
await push.request("savePushToken", { body: device });
