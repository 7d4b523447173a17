/** A key and a store for browsers, in IndexedDB: the key cannot be read, and all tabs share both. */
import type { Signer } from "./dpop.ts";
import { GatepostError } from "./errors.ts";
import { memoryStore, type SessionStore, storedIn } from "./store.ts";
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
/** Of the error with which a browser refuses IndexedDB as such, by its settings or in a private window. */
const refusals: ReadonlySet<unknown> = new Set(["SecurityError", "InvalidStateError"]);

/**
 * Both belong together: a session whose key is gone is `key_lost`.
 * @param name of the database
 * @throws the browser's errors where there is IndexedDB, and it fails: a session may be there. GatepostError for a
 *   database that is not of this package
 */
export async function browserStorage(name = "gatepost-client"): Promise<BrowserStorage> {
  const fresh = await newKeyPair();
  const within = transactionsOf(name);
  try {
    const keys = await within<KeyPair>("readwrite", (objects, settle) => {
      const found = objects.get("key");
      found.onsuccess = () => {
        if (!found.result) objects.put(fresh, "key");
        settle(found.result ?? fresh);
      };
    });
    const signer = await signerOf(keys);
    return { store: storeIn(within, keys, signer), signer, isPersistent: true };
  } catch (error) {
    const { name: refusal }: { name?: unknown } = Object(error);
    if (typeof indexedDB !== "undefined" && !refusals.has(refusal)) throw error;
    return { store: memoryStore(), signer: await signerOf(fresh), isPersistent: false };
  }
}

type Within = ReturnType<typeof transactionsOf>;

function storeIn(within: Within, keys: KeyPair, { publicJwk }: Signer): SessionStore {
  return {
    read: () =>
      within("readonly", (objects, settle) => {
        const found = objects.get("text");
        found.onsuccess = () => settle(found.result);
      }),
    replace: (expected, next) =>
      within("readwrite", (objects, settle) => {
        const found = objects.get("text");
        found.onsuccess = () => {
          const isExpected = found.result === expected;
          if (isExpected && next === undefined) objects.delete("text");
          else if (isExpected) objects.put(next, "text");
          // The user may have cleared the data of the site since this page was opened.
          const key = isExpected && storedIn(next ?? "")?.session?.key;
          if (key === publicJwk.x) objects.put(keys, "key");
          settle(isExpected);
        };
      }),
  };
}

type Work<T> = (objects: IDBObjectStore, settle: (result: T) => void) => void;

/** @returns runs something in one transaction, and resolves when that is complete */
function transactionsOf(name: string) {
  let opening: Promise<IDBDatabase> | undefined;

  async function begun(mode: IDBTransactionMode): Promise<IDBTransaction> {
    opening ??= opened(name);
    return (await opening).transaction(place, mode, { durability: "strict" });
  }
  return async <T>(mode: IDBTransactionMode, work: Work<T>): Promise<T> => {
    // Safari closes the connections of pages in the background.
    const transaction = await begun(mode).catch(() => {
      opening = undefined;
      return begun(mode);
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

/** Nothing blocks it: no page of this package keeps a connection that another version of the database waits for. */
function opened(name: string): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(place);
    request.onsuccess = () => {
      const database = request.result;
      database.onversionchange = () => database.close();
      if (database.objectStoreNames.contains(place)) return resolve(database);
      database.close();
      reject(
        new GatepostError(`The database ${name} is another program's: give browserStorage another name`),
      );
    };
    request.onerror = () => reject(request.error);
  });
}
