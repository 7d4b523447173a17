/** A harness with one program to look after. It ends as its argument says. */
import { spawn } from "node:child_process";
import { endChildrenAtExit, interruption } from "./ending.ts";

endChildrenAtExit();
const interrupted = interruption();
// It has our standard output, which is open as long as it lives.
const lasting = `process.stdout.write("started\\n"); setTimeout(() => process.stdout.write("outlived\\n"), 20_000)`;
spawn(process.execPath, ["-e", lasting], { stdio: ["ignore", "inherit", "inherit"] });
process.stdin.once("data", () => {
  if (process.argv[2] === "exception") throw new Error("a defect");
  if (process.argv[2] === "rejection") void Promise.reject(new Error("a defect"));
});
await interrupted;
