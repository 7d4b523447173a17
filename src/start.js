/**
 * Enables Node's compile cache, starts V8 with the program's flags, and starts main.ts. This file is JavaScript
 * because it cannot be in the cache itself: as TypeScript, every start would load Node's TypeScript parser for it,
 * 15 MB and a tenth of a second.
 */
import "./installed.js";
import module from "node:module";

// Not a named import: a Node.js without this export would fail here before installed.js can print the reason.
module.enableCompileCache();
const { restartWith, startFlags, unlessGiven } = await import("./platform/process/v8-flags.ts");
restartWith(unlessGiven(startFlags, process.env), process.env);
await import("./main.ts");
