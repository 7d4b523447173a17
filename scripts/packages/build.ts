/**
 * `node scripts/packages/build.ts <package>`: compiles packages/<package> into its dist, as `npm pack` needs it: Node
 * strips no types below node_modules. The contracts have no sources of their own: what is generated from the documents,
 * and the documents.
 */
import { cpSync, globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { readArguments } from "../../src/command.ts";
import { outputOf, ROOT, usageIn } from "../command.ts";

const { positionals } = readArguments({
  usage: usageIn(import.meta.filename),
  options: {},
  operands: [1, 1],
});
const [name = ""] = positionals;
const folderOf = (name: string) => join(ROOT, "packages", name);
const dist = join(folderOf(name), "dist");

// What the client imports is resolved as it is where both are installed.
if (name === "client") await outputOf(process.execPath, import.meta.filename, "contracts");

rmSync(dist, { recursive: true, force: true });
await outputOf("tsc", "-p", join(folderOf(name), "tsconfig.build.json"));

// The compiler rewrites the names of imported files in what runs, and leaves them in the declarations.
for (const declarations of globSync("**/*.d.ts", { cwd: dist })) {
  const file = join(dist, declarations);
  const text = readFileSync(file, "utf8");
  writeFileSync(file, text.replaceAll(/((?:from|import) ?\(?"\.{1,2}\/[^"]+)\.ts"/g, '$1.js"'));
}
cpSync(join(ROOT, "LICENSE"), join(folderOf(name), "LICENSE"));

if (name === "contracts") {
  const documents = join(dist, "documents");
  for (const file of globSync("{openapi/*.yaml,gen/openapi/*.json,gen/descriptors/*}", { cwd: ROOT }))
    cpSync(join(ROOT, file), join(documents, basename(file)));
  cpSync(join(ROOT, "gen/asyncapi"), join(documents, "asyncapi"), { recursive: true });
  for (const file of globSync("proto/{auth,push}/**/*.proto", { cwd: ROOT }))
    cpSync(join(ROOT, file), join(documents, file));
}
