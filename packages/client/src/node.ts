/** A key and a store for Node.js, in files that only this user can read. */
import { createPrivateKey, createPublicKey, generateKeyPairSync, randomUUID, sign } from "node:crypto";
import { link, mkdir, open, readdir, readFile, rename, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import type { Signer } from "./dpop.ts";
import type { SessionStore } from "./store.ts";

async function write(file: string, text: string): Promise<void> {
  const handle = await open(file, "wx", 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle.close();
  }
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
  if (text !== undefined) return signerOf(text);
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const temporary = `${file}.${randomUUID()}`;
  await write(temporary, privateKey.export({ type: "pkcs8", format: "pem" }).toString());
  // Of processes that start at the same moment, the first one's stays.
  await link(temporary, file).catch(unless("EEXIST"));
  await rm(temporary);
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
 * A store in a folder of its own, on a local disk, for any number of processes. No process waits for another, and one
 * may be killed at any moment: the text of now is the file `text-<id>` of the one id that a file `current-<id>` names,
 * and to rename that succeeds for one process alone.
 */
export function folderStore(folder: string): SessionStore {
  const place = (name: string) => join(folder, name);

  async function create(): Promise<void> {
    await mkdir(dirname(folder), { recursive: true, mode: 0o700 });
    const temporary = `${folder}.${randomUUID()}`;
    await mkdir(temporary, { mode: 0o700 });
    await write(join(temporary, `current-none-${randomUUID()}`), "");
    // It fails where another process has been here before.
    await rename(temporary, folder).catch(unless("ENOTEMPTY", "EEXIST", "EPERM"));
    await rm(temporary, { recursive: true, force: true });
  }

  async function current(): Promise<{ readonly id: string; readonly text: string | undefined }> {
    for (let attempt = 0; attempt < 1000; attempt++) {
      const names = (await readdir(folder).catch(unless("ENOENT"))) ?? [];
      const ids = names.flatMap((name) => /^current-(.*)$/.exec(name)?.[1] ?? []);
      const [id] = ids;
      if (id === undefined) await create();
      // A name that is changed while the folder is read may be seen twice, or not at all.
      if (id === undefined || ids.length > 1) continue;
      if (id.startsWith("none-")) return { id, text: undefined };
      const text = await textIn(place(`text-${id}`));
      if (text !== undefined) return { id, text };
    }
    throw new Error(`${folder} is no folder of this store, or not on a local disk`);
  }

  return {
    read: async () => (await current()).text,

    async replace(expected, next) {
      const { id: old, text } = await current();
      if (text !== expected) return false;
      const id = `${next === undefined ? "none-" : ""}${randomUUID()}`;
      if (next !== undefined) await write(place(`text-${id}`), next);
      const isOurs = await rename(place(`current-${old}`), place(`current-${id}`)).then(
        () => true,
        (error: unknown) => unless("ENOENT")(error) ?? false,
      );
      // The new name outlives a loss of power before the old text is gone.
      if (isOurs) await synced(folder);
      await rm(place(`text-${isOurs ? old : id}`), { force: true });
      return isOurs;
    },
  };
}

/** Windows opens no folders, and needs none of this. */
async function synced(folder: string): Promise<void> {
  const handle = await open(folder, "r").catch(unless("EPERM", "EISDIR", "EACCES"));
  await handle?.sync();
  await handle?.close();
}
