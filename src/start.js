/**
 * Starts main.ts with Node's compile cache on. In JavaScript, as what turns the cache on cannot be in it: were
 * this TypeScript, every start would load Node's TypeScript parser, 15 MB and a tenth of a second, for this file.
 */
import { enableCompileCache } from "node:module";

enableCompileCache();
await import("./main.ts");
