/** A page that is met by what may happen to its IndexedDB, and tells its server. */
const { createSession } = await import("@gatepost/client");
const { browserStorage } = await import("@gatepost/client/browser");

const pair = { access_token: `e30.${btoa('{"sub":"ada"}')}.`, refresh_token: "R1", expires_in: 900 };
const sessionOf = ({ store, signer }) =>
  createSession({ authUrl: location.origin, client: { clientId: "app" }, store, signer });
const done = (request) =>
  new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
    request.onblocked = () => reject(new Error("blocked"));
  });
const failing = (storage) => storage.then(({ isPersistent }) => ({ isPersistent }), String);
const seen = {};

// The data of the site are cleared while the page is open, and the user signs in again.
const open = await browserStorage("cleared");
await sessionOf(open).begin(pair);
await done(indexedDB.deleteDatabase("cleared"));
seen.afterClearing = await sessionOf(open).userId();
// Another tab that was opened meanwhile has another key.
const other = await browserStorage("cleared");
await sessionOf(open).begin(pair);
seen.otherTab = await sessionOf(other).userId();
// What that one writes there leaves the session its key.
const text = await other.store.read();
await other.store.replace(text, text.replace("{", '{"toRevoke":["R0"],'));
seen.afterReload = await sessionOf(await browserStorage("cleared")).userId();

// A later version of the package is opened in another tab.
const later = await done(indexedDB.open("cleared", 2)).then((found) => found.close(), String);
seen.later = { later, now: await open.store.read().catch(({ name }) => name) };

const own = indexedDB.open("another's", 1);
own.onupgradeneeded = () => own.result.createObjectStore("kept");
(await done(own)).close();
seen.another = await failing(browserStorage("another's"));

const { open: opening } = IDBFactory.prototype;
for (const name of ["UnknownError", "QuotaExceededError", "SecurityError", "InvalidStateError"]) {
  IDBFactory.prototype.open = () => {
    throw new DOMException("refused", name);
  };
  seen[name] = await failing(browserStorage("cleared"));
}
IDBFactory.prototype.open = opening;
delete globalThis.indexedDB;
Object.defineProperty(globalThis, "indexedDB", { value: undefined, configurable: true });
seen.without = await failing(browserStorage());
await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
