/** A page that keeps a session's text and key, and tells its server of them: the same ones after a reload. */
import { browserStorage } from "@gatepost/client/browser";

const { store, signer, isPersistent } = await browserStorage();
const text = await store.read();
if (text === undefined) await store.replace(undefined, "kept");
const signature = await signer.sign(new TextEncoder().encode("data"));
const seen = { isPersistent, text, x: signer.publicJwk.x, bytes: signature.length };
await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
