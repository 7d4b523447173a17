/** The log of a process: how lines are written. redaction.ts keeps secrets out of them. */
import { createRequire } from "node:module";
import { type DestinationStream, type Logger, type LoggerOptions, pino } from "pino";
import { isOfOutage } from "../base/outage.ts";
import type { Environment } from "../settings/kinds.ts";
import { createFileOutput } from "./file-output.ts";
import { createOutput } from "./output.ts";
import { loggable, redactLine } from "./redaction.ts";
import { limitStacks } from "./repeated-stacks.ts";

export type { Logger } from "pino";

export interface LoggerSettings {
  /** The least severe level written: trace, debug, info, warn, error, fatal, or silent. */
  readonly level: string;
  /** JSON lines in production, lines for people in development. */
  readonly environment: Environment;
  /** Where lines go; standard output unless given. */
  readonly destination?: DestinationStream;
}

/**
 * The log of a process: lines go to the system at once, through redaction.ts; those of an outage to level debug. The
 * stack of an error that comes again is written once a minute: repeated-stacks.ts.
 */
export function createLogger(settings: LoggerSettings): Logger {
  const { level, environment } = settings;
  const withoutRepeatedStacks = limitStacks();
  const options: LoggerOptions = {
    level,
    formatters: { level: (label) => ({ level: label }) },
    timestamp: pino.stdTimeFunctions.isoTime,
    // Errors arrive serialised. pino's own serialiser would copy all their fields.
    serializers: { err: (value: unknown) => value },
    hooks: {
      logMethod(args, method, level) {
        const [first] = args;
        const error = typeof first === "object" && first !== null && "err" in first ? first.err : first;
        // The outage has its lines, and no line of level debug or fatal is one too many.
        const isSaid = isOfOutage(error) && ["warn", "error"].includes(pino.levels.labels[level] ?? "");
        if (isSaid) Reflect.apply(this.debug, this, args);
        else Reflect.apply(method, this, loggableArguments(args).map(withoutRepeatedStacks));
      },
      streamWrite: redactLine,
    },
  };
  const output = settings.destination ?? standardOutput();
  const isStandardOutput = settings.destination === undefined;
  const logger = pino(
    options,
    environment === "production" ? output : prettyPrinted(output, isStandardOutput),
  );
  return redactBindings(logger);

  function standardOutput(): DestinationStream {
    return createOutput(process.stdout, (lines) => {
      logger.warn({ lines }, "Lines of the log were dropped, because nobody read standard output");
    });
  }
}

/** The log of a file, whose lines are written when it is flushed: file-output.ts. Rejects if it cannot be written. */
export async function createFileLogger(path: string): Promise<Logger> {
  return createLogger({
    level: "info",
    environment: "production",
    destination: await createFileOutput(path),
  });
}

/** The arguments of a log call: `(object?, message?, ...values)`. */
function loggableArguments(args: readonly unknown[]): unknown[] {
  const [first, ...rest] = args.map(loggable);
  if (typeof args[0] !== "object" || args[0] === null) return [first, ...rest];
  if (args[0] instanceof Error) return withMessage({ err: first }, first, rest);
  if (typeof first !== "object" || first === null) return [{ value: first }, ...rest];
  return "err" in first && !("msg" in first) ? withMessage(first, first.err, rest) : [first, ...rest];
}

/** A line with an error and no message gets the error's message. */
function withMessage(object: object, error: unknown, rest: readonly unknown[]): unknown[] {
  if (rest.length > 0) return [object, ...rest];
  const hasMessage = typeof error === "object" && error !== null && "message" in error;
  // As a value of `%s`, the error's message is not parsed as a format string.
  return hasMessage ? [object, "%s", error.message] : [object];
}

/** pino has no hook for bindings, so the two methods that take them are wrapped. Children inherit the wrappers. */
function redactBindings(logger: Logger): Logger {
  for (const name of ["child", "setBindings"] as const) {
    const method = logger[name];
    Object.defineProperty(logger, name, {
      value(this: Logger, bindings: unknown, ...rest: unknown[]): unknown {
        return Reflect.apply(method, this, [loggable(bindings), ...rest]);
      },
    });
  }
  return logger;
}

function prettyPrinted(output: DestinationStream, isStandardOutput: boolean): DestinationStream {
  // Loaded only when it is used, which saves its memory in production.
  const { prettyFactory }: typeof import("pino-pretty") = createRequire(import.meta.url)("pino-pretty");
  const pretty = prettyFactory({
    colorize: isStandardOutput && process.stdout.isTTY && process.stdout.hasColors(),
    ignore: "pid,hostname",
    singleLine: true,
    translateTime: "SYS:HH:MM:ss.l",
  });
  return { ...output, write: (line) => output.write(pretty(line)) };
}
