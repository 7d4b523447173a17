/** A key and a store for browsers, in IndexedDB: the key cannot be read, and all tabs share both. */
import type { Signer } from "./dpop.ts";
import { memoryStore, type SessionStore } from "./store.ts";
import { type KeyPair, newKeyPair, signerOf } from "./web-crypto.ts";

export interface BrowserStorage {
  readonly store: SessionStore;
  readonly signer: Signer;
  /**
   * False: there is no IndexedDB, as in some private windows. A session ends with the page. Where it is true, the
   * browser may still remove it, as Safari does a week after the last visit.
   */
  readonly isPersistent: boolean;
}

const place = "session";

/** Both belong together: a session whose key is gone is `key_lost`. @param name of the database */
export async function browserStorage(name = "gatepost"): Promise<BrowserStorage> {
  const fresh = await newKeyPair();
  const within = transactionsOf(name);
  try {
    const keys = await within<KeyPair>((objects, settle) => {
      const found = objects.get("key");
      found.onsuccess = () => {
        if (!found.result) objects.put(fresh, "key");
        settle(found.result ?? fresh);
      };
    });
    return { store: storeIn(within), signer: await signerOf(keys), isPersistent: true };
  } catch {
    return { store: memoryStore(), signer: await signerOf(fresh), isPersistent: false };
  }
}

function storeIn(within: ReturnType<typeof transactionsOf>): SessionStore {
  return {
    read: () =>
      within((objects, settle) => {
        const found = objects.get("text");
        found.onsuccess = () => settle(found.result);
      }),
    replace: (expected, next) =>
      within((objects, settle) => {
        const found = objects.get("text");
        found.onsuccess = () => {
          const isExpected = found.result === expected;
          if (isExpected && next === undefined) objects.delete("text");
          else if (isExpected) objects.put(next, "text");
          settle(isExpected);
        };
      }),
  };
}

type Work<T> = (objects: IDBObjectStore, settle: (result: T) => void) => void;

/** @returns runs something in one transaction, and resolves when that is complete */
function transactionsOf(name: string) {
  let opening: Promise<IDBDatabase> | undefined;

  async function begun(): Promise<IDBTransaction> {
    opening ??= opened(name);
    return (await opening).transaction(place, "readwrite", { durability: "strict" });
  }
  return async <T>(work: Work<T>): Promise<T> => {
    // Safari closes the connections of pages in the background.
    const transaction = await begun().catch(() => {
      opening = undefined;
      return begun();
    });
    return new Promise((resolve, reject) => {
      let complete: (() => void) | undefined;
      work(transaction.objectStore(place), (result) => {
        complete = () => resolve(result);
      });
      transaction.oncomplete = () => complete?.();
      transaction.onabort = () => reject(transaction.error);
    });
  };
}

function opened(name: string): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(place);
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
