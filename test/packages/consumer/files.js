/** Keeps a key and a text in files, on whatever runtime. @throws where they are not what they should be */
import { mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileSigner, folderStore } from "@gatepost/client/node";

const folder = mkdtempSync("files-");
try {
  const signers = [await fileSigner(join(folder, "key.pem")), await fileSigner(join(folder, "key.pem"))];
  const [first, second] = signers.map(({ publicJwk }) => publicJwk.x);
  const signature = await signers[0].sign(new TextEncoder().encode("data"));
  const store = folderStore(join(folder, "store"));
  const written = await Promise.all(["a", "b", "c"].map((text) => store.replace(undefined, text)));
  const kept = await store.read();
  const wins = written.filter(Boolean).length;
  if (first !== second || signature.length !== 64 || wins !== 1 || !"abc".includes(kept))
    throw new Error(JSON.stringify({ first, second, written, kept, bytes: signature.length }));
} finally {
  rmSync(folder, { recursive: true });
}
