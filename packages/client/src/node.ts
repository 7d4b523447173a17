/** A key and a store for Node.js, in files that only this user can read. */
import { createPrivateKey, createPublicKey, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { link, mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import type { Signer } from "./dpop.ts";
import type { SessionStore } from "./store.ts";

/** A file with a name of its own, of which nothing is left where the disk is full. */
async function write(file: string, text: string): Promise<void> {
  const handle = await open(file, "wx", 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } catch (error) {
    await rm(file, { force: true });
    throw error;
  } finally {
    await handle.close();
  }
}

/** Removes files of a folder by their names. It need not be listed, as one for a secret may not be. */
async function sweep(folder: string, isLeft: (name: string) => boolean): Promise<void> {
  const names = await readdir(folder).catch(unless("EACCES", "EPERM"));
  await Promise.all((names ?? []).filter(isLeft).map((name) => rm(join(folder, name), { force: true })));
}

/** Undefined for a file that is not there. */
async function textIn(file: string): Promise<string | undefined> {
  return readFile(file, "utf8").catch(unless("ENOENT"));
}

/** @returns what makes undefined of errors with such a code, and throws others */
function unless(...codes: readonly string[]) {
  return (error: unknown): undefined => {
    const { code }: { code?: string } = Object(error);
    if (code === undefined || !codes.includes(code)) throw error;
  };
}

/**
 * A key in a file (PEM, PKCS #8), which is made where there is none. Who can read the file has the key.
 * @throws the file system's errors, and those of `node:crypto` for a file that holds no key of P-256
 */
export async function fileSigner(file: string): Promise<Signer> {
  const text = await textIn(file);
  if (text !== undefined) {
    // Of processes that were killed here.
    await sweep(dirname(file), (name) => name.startsWith(`${basename(file)}.new-`));
    return signerOf(text);
  }
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const temporary = `${file}.new-${randomUUID()}`;
  await write(temporary, privateKey.export({ type: "pkcs8", format: "pem" }).toString());
  // Of processes that start at the same moment, the first one's stays, and sweeps the others.
  await link(temporary, file).catch(unless("EEXIST", "ENOENT"));
  return fileSigner(file);
}

function signerOf(pem: string): Signer {
  const key = createPrivateKey(pem);
  const { crv, x, y } = createPublicKey(key).export({ format: "jwk" });
  if (crv !== "P-256" || x === undefined || y === undefined) throw new TypeError("The key is none of P-256");
  return {
    publicJwk: { kty: "EC", crv, x, y },
    // As JWS has it, and not in DER.
    sign: async (data) => new Uint8Array(sign("sha256", data, { key, dsaEncoding: "ieee-p1363" })),
  };
}

/**
 * A store in a folder, on a local disk, for any number of processes. No process waits for another, and one may be killed
 * at any moment: the text of now is in the file `text-<id>` of the one id that a file `current-<id>` names, and to rename
 * that succeeds for one process alone. An id begins with a number that grows, so that a text whose number has passed is
 * never named again. A text that somebody else has removed is read as an empty one.
 */
export function folderStore(folder: string): SessionStore {
  // The folder itself may be a volume's, or hold other files: neither can be put in its place as a whole.
  const home = join(folder, "session");
  const place = (name: string) => join(home, name);

  async function create(): Promise<void> {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const temporary = `${home}.${randomUUID()}`;
    try {
      await mkdir(temporary, { mode: 0o700 });
      await write(join(temporary, "current-0-none"), "");
      // It fails where another process has been here before.
      await rename(temporary, home).catch(unless("ENOTEMPTY", "EEXIST", "EPERM"));
    } finally {
      await rm(temporary, { recursive: true, force: true });
    }
  }

  async function current(): Promise<{ readonly id: string; readonly text: string | undefined }> {
    let lost: string | undefined;
    for (let attempt = 0; attempt < 1000; attempt++) {
      const names = await readdir(home).catch(unless("ENOENT"));
      const ids = (names ?? []).flatMap((name) => /^current-(.*)$/.exec(name)?.[1] ?? []);
      const [id] = ids;
      if (id === undefined) await create();
      // A name that is changed while the folder is read may be seen twice, or not at all.
      if (id === undefined || ids.length > 1) continue;
      if (id.endsWith("-none")) return { id, text: undefined };
      const text = await textIn(place(`text-${id}`));
      if (text !== undefined) return { id, text };
      // No process removes the text of a name that is still there.
      if (id === lost) return { id, text: "" };
      lost = id;
    }
    throw new Error(`${home} is no folder of this store, or not on a local disk`);
  }

  return {
    read: async () => (await current()).text,

    async replace(expected, next) {
      const { id: old, text } = await current();
      if (text !== expected) return false;
      const number = Number.parseInt(old, 10) + 1;
      const id = `${number}-${next === undefined ? "none" : randomUUID()}`;
      if (next !== undefined) await write(place(`text-${id}`), next);
      const isOurs = await rename(place(`current-${old}`), place(`current-${id}`)).then(
        () => true,
        (error: unknown) => unless("ENOENT")(error) ?? false,
      );
      if (!isOurs) {
        await rm(place(`text-${id}`), { force: true });
        return false;
      }
      // The new name outlives a loss of power before the old text is gone.
      await synced(home);
      const hasPassed = (name: string) => Number(/^text-(\d+)-/.exec(name)?.[1]) <= number;
      await sweep(home, (name) => hasPassed(name) && name !== `text-${id}`);
      return true;
    },
  };
}

/** Windows opens no folders, and needs none of this. */
async function synced(folder: string): Promise<void> {
  const handle = await open(folder, "r").catch(unless("EPERM", "EISDIR", "EACCES"));
  await handle?.sync();
  await handle?.close();
}
