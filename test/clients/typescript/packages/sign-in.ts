/** The user of this page, whom a reload finds signed in. */
import { authorizedFetch, createSession, createSignIn } from "@gatepost/client";
import { browserStorage } from "@gatepost/client/browser";

const { store, signer } = await browserStorage();
const auth = { authUrl: "http://127.0.0.1:8080/api/auth", client: { clientId: "app" }, signer };
export const session = createSession({ ...auth, store, onSignedOut: () => location.reload() });
export const signIn = createSignIn({ ...auth, session });

/** `fetch` with the user's access token, for your API. */
export const api = authorizedFetch({ session, origins: ["http://127.0.0.1:3000"] });
