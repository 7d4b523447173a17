/**
 * `node scripts/packages/build.ts <package>`: compiles packages/<package>/src into its dist, as `npm pack` needs it: Node
 * strips no types below node_modules.
 */
import { globSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { readArguments } from "../../src/command.ts";
import { outputOf, ROOT, usageIn } from "../command.ts";

const { positionals } = readArguments({
  usage: usageIn(import.meta.filename),
  options: {},
  operands: [1, 1],
});
const folder = join(ROOT, "packages", positionals[0] ?? "");
const dist = join(folder, "dist");
rmSync(dist, { recursive: true, force: true });
await outputOf("tsc", "-p", join(folder, "tsconfig.build.json"));

// The compiler rewrites the names of imported files in what runs, and leaves them in the declarations.
for (const name of globSync("**/*.d.ts", { cwd: dist })) {
  const file = join(dist, name);
  const text = readFileSync(file, "utf8");
  writeFileSync(file, text.replaceAll(/((?:from|import) ?\(?"\.{1,2}\/[^"]+)\.ts"/g, '$1.js"'));
}
