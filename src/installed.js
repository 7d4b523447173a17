/**
 * Ends the program with a one-line message if its requirements are not met: the packages of package.json, in their
 * versions, and a Node.js that runs TypeScript. With the argument --all the packages needed to work on it count too:
 * `npm ci --omit=dev` leaves them out. This file is imported first, and is in JavaScript that old versions
 * of Node.js can parse, since they cannot parse the rest of the program. What is imported after it comes from Node's
 * compile cache.
 */
import { readFileSync } from "node:fs";
import module from "node:module";

/** @param {string} path relative to this file */
function read(path) {
  return JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
}

/** @param {string} name of a package */
function installedVersion(name) {
  try {
    return read(`../node_modules/${name}/package.json`).version;
  } catch {
    return undefined;
  }
}

/** @param {string} version such as 24.9.0 */
function numbers(version) {
  return version.split(".").map(Number);
}

/** @param {string} required such as >=24.9.0 */
function isOlderThan(required) {
  const [major = 0, minor = 0] = numbers(process.versions.node);
  const [leastMajor = 0, leastMinor = 0] = numbers(required.replace(">=", ""));
  return major < leastMajor || (major === leastMajor && minor < leastMinor);
}

function problem() {
  const { dependencies: ofServer, devDependencies: ofTools, engines } = read("../package.json");
  const dependencies = process.argv[2] === "--all" ? { ...ofServer, ...ofTools } : ofServer;
  const installed = Object.keys(dependencies).map((name) => ({ name, version: installedVersion(name) }));
  if (installed.every(({ version }) => version === undefined)) {
    return "The packages of gatepost are not installed. Run: npm ci";
  }
  const wrong = installed.find(({ name, version }) => version !== dependencies[name]);
  if (wrong !== undefined) {
    const { name, version } = wrong;
    const state = version === undefined ? "is missing from node_modules" : `is ${version} in node_modules`;
    return `The installed packages are not those of package.json: ${name} ${state}, and should be ${dependencies[name]}. Run: npm ci`;
  }
  if (isOlderThan(engines.node)) {
    const wayOut = installedVersion("node")
      ? "The npm scripts, such as npm start, use the one in node_modules/.bin. Or: node_modules/.bin/node src/start.js"
      : "Install it: npm ci brings one for the npm scripts, such as npm start, but npm ci --omit=dev does not.";
    return `This is Node.js ${process.versions.node}, and gatepost needs ${engines.node}. ${wayOut}`;
  }
  return undefined;
}

const found = problem();
if (found !== undefined) {
  process.stderr.write(`${found}\n`);
  // EX_CONFIG of sysexits.h, as after wrong settings: to start it again changes nothing.
  process.exit(78);
}
// Not a named import: a Node.js without this export would fail here before the reason is printed.
module.enableCompileCache();
