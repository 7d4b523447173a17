/**
 * npm runs this file after an installation. If npm itself runs on a Node.js that is too old for the program, it would
 * print a warning for each package that requires a newer one. .npmrc hides those warnings, and this file prints one
 * line instead. It is JavaScript, so that the older Node.js can run it.
 */
import { readFileSync } from "node:fs";

/** @param {string} path relative to the project */
function read(path) {
  return JSON.parse(readFileSync(new URL(`../${path}`, import.meta.url), "utf8"));
}

/** @param {string} version such as 24.9.0 @param {string} required such as >=24.9.0 */
function isOlder(version, required) {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [leastMajor = 0, leastMinor = 0] = required.replace(">=", "").split(".").map(Number);
  return major < leastMajor || (major === leastMajor && minor < leastMinor);
}

/** The version of the `node` in node_modules; undefined where it was left out, as by --omit=dev. */
function ownVersion() {
  try {
    return read("node_modules/node/package.json").version;
  } catch {
    return undefined;
  }
}

const { engines } = read("package.json");
// npm runs this file with the `node` of node_modules; the user agent states the version that npm runs on.
const [, ofNpm] = /\bnode\/v(\S+)/.exec(process.env.npm_config_user_agent ?? "") ?? [];
if (ofNpm !== undefined && isOlder(ofNpm, engines.node)) {
  const own = ownVersion();
  const what =
    own === undefined
      ? `gatepost needs ${engines.node}, and its own was left out: install one, or leave out nothing`
      : `the scripts of gatepost run on their own, ${own}`;
  process.stdout.write(`npm runs on Node.js ${ofNpm}; ${what}.\n`);
}
