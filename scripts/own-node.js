/**
 * npm runs this file after an installation. If npm itself runs on an older Node.js, it would print a warning for each
 * package that requires a newer one. .npmrc hides those warnings, and this file prints one line instead. It is
 * JavaScript, so that the older Node.js can run it.
 */
import { readFileSync } from "node:fs";

const { devDependencies } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
const own = devDependencies.node;
// The installed `node` runs this file; the user agent states the version that npm runs on.
const [, ofNpm] = /\bnode\/v(\S+)/.exec(process.env.npm_config_user_agent ?? "") ?? [];
if (ofNpm !== undefined && Number.parseInt(ofNpm, 10) < Number.parseInt(own, 10)) {
  process.stdout.write(`npm runs on Node.js ${ofNpm}; the scripts of gatepost run on their own, ${own}.\n`);
}
