/**
 * Run by npm once it has installed. Where npm itself runs on an older Node.js, it would warn of that for each package
 * that wants a newer one; .npmrc hides those warnings, and this is said in their place. In JavaScript, for that Node.js.
 */
import { readFileSync } from "node:fs";

const { devDependencies } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
const own = devDependencies.node;
// The `node` that runs this is the installed one; the user agent has the version that npm runs on.
const [, ofNpm] = /\bnode\/v(\S+)/.exec(process.env.npm_config_user_agent ?? "") ?? [];
if (ofNpm !== undefined && Number.parseInt(ofNpm, 10) < Number.parseInt(own, 10)) {
  process.stdout.write(`npm runs on Node.js ${ofNpm}; the scripts of gatepost run on their own, ${own}.\n`);
}
