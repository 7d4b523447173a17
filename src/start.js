/**
 * Starts main.ts with Node's compile cache on. In JavaScript, as what turns the cache on cannot be in it: were
 * this TypeScript, every start would load Node's TypeScript parser, 15 MB and a tenth of a second, for this file.
 */
import "./installed.js";
import module from "node:module";

// Not by its name: a Node.js without it would refuse this file before installed.js can say what is wrong.
module.enableCompileCache();
await import("./main.ts");
