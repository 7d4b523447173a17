/** Prints its process id and Node's flags, with those of its arguments. */
import { restartWith, startFlags, unlessGiven } from "../../../src/platform/process/v8-flags.ts";

process.stdout.write(`${process.pid}\n`);
restartWith(unlessGiven(startFlags, process.env), process.env);
process.stdout.write(`${JSON.stringify(process.execArgv)}\n`);
