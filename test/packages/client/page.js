/** A page of an app: signs its user in, or finds him signed in and renews his tokens; and tells its server. */
const { entries, authUrl, issuer, phone } = await (await fetch("/options")).json();
for (const entry of entries) await import(entry);
const { createSession, createSignIn } = await import("@gatepost/client");
const { browserStorage } = await import("@gatepost/client/browser");

const { isPersistent, ...storage } = await browserStorage();
const address = { authUrl, issuer, client: { clientId: "app" }, signer: storage.signer };
const session = createSession({ ...address, store: storage.store });
const found = await session.userId();
if (found === undefined) {
  const signIn = createSignIn({ ...address, session });
  const pending = await signIn.begin(phone);
  await signIn.submit(pending, await (await fetch("/code")).text());
} else {
  // Another tab renews them at the same moment.
  const other = createSession({ ...address, store: storage.store });
  const old = await session.accessToken();
  await Promise.all([session.accessToken(old), other.accessToken(old)]);
}
const seen = { found, isPersistent, token: await session.accessToken(), key: storage.signer.publicJwk.x };
await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
