/**
 * Starts V8 with the program's flags, and starts main.ts. This file is JavaScript because it cannot be in Node's
 * compile cache, which installed.js enables: as TypeScript, every start would load Node's TypeScript parser for it,
 * 15 MB and a tenth of a second.
 */
import "./installed.js";

const { restartWith, startFlags, unlessGiven } = await import("./platform/process/v8-flags.ts");
restartWith(unlessGiven(startFlags, process.env), process.env);
await import("./main.ts");
