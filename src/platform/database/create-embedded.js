/**
 * The program of a thread that creates an embedded database: in memory, and then file by file, as PGlite by itself makes
 * an archive of it first, which takes a third longer. JavaScript, as src/start.js is: as TypeScript, the thread would
 * load Node's TypeScript parser.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { workerData } from "node:worker_threads";
import { PGlite } from "@electric-sql/pglite";

const { PGDATA } = PGlite.paths;
const version = `${PGDATA}/PG_VERSION`;
/** PostgreSQL's template1 and template0, from which nothing is made here: two thirds of the files. */
const leftOut = [`${PGDATA}/base/1`, `${PGDATA}/base/4`];

const created = await PGlite.create({ initDbStartParams: workerData.initDbStartParams });
await created.exec("checkpoint");
const { FS } = created.Module;
copy(PGDATA, workerData.dataDir);
// Last, as it says that there is a database.
writeFileSync(join(workerData.dataDir, "PG_VERSION"), FS.readFile(version), { mode: 0o600 });

/**
 * @param {string} from
 * @param {string} to
 */
function copy(from, to) {
  mkdirSync(to, { recursive: true, mode: 0o700 });
  for (const name of FS.readdir(from)) {
    const path = `${from}/${name}`;
    if (name === "." || name === ".." || path === version || leftOut.includes(path)) continue;
    if (FS.isDir(FS.stat(path).mode)) copy(path, join(to, name));
    else writeFileSync(join(to, name), FS.readFile(path), { mode: 0o600 });
  }
}
// Otherwise what PGlite leaves open keeps the thread, and whoever waits for its end, for ten seconds more.
process.exit();
