/** A page of an app: signs its user in, or finds him signed in, beside another tab; and tells its server. */
const { entries, authUrl, issuer, phone } = await (await fetch("/options")).json();
for (const entry of entries) await import(entry);
const { createSession, createSignIn } = await import("@gatepost/client");
const { browserStorage } = await import("@gatepost/client/browser");

const { isPersistent, ...storage } = await browserStorage();
const address = { authUrl, issuer, client: { clientId: "app" }, signer: storage.signer };
const session = createSession({ ...address, store: storage.store });
/** Waits until both tabs have come so far. @returns whether this one was the first */
const meet = async (place) => {
  // With a GET, one tab would wait for the other's response.
  const met = await fetch(`/meet/${place}`, { method: "POST" });
  return (await met.text()) === "first";
};
const seen = { isPersistent, key: storage.signer.publicJwk.x, found: await session.userId() };

if (seen.found === undefined) {
  const signIn = createSignIn({ ...address, session });
  const pending = await signIn.begin(phone);
  await signIn.submit(pending, await (await fetch("/code")).text());
  seen.token = await session.accessToken();
} else {
  const old = await session.accessToken();
  await meet("start");
  // Both renew them at the same moment.
  await session.accessToken(old);
  await meet("renewed");
  seen.token = await session.accessToken();
  if (await meet("told")) await session.signOut();
  await meet("signed out");
  seen.left = await session.userId();
  seen.ended = await session.accessToken().catch(({ reason }) => reason);
}
await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
