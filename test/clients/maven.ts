/** Maven, which builds Java and Kotlin, and fetches openapi-generator. */
import type { RunOptions, World } from "./language.ts";

/** Its two ways of asking registries, of Maven 3.8 and of 3.9 and later; a connection that is cut is tried again. */
const RETRIES = ["wagon.http", "resolver.transport.http"].map((way) => `-Dmaven.${way}.retryHandler.count=5`);

/** The program lives for seconds: the best code that the compiler can make would never pay. */
export const shortLived = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] as const;

/** Only one runs at a time: processes that share a local repository break each other's downloads. */
let previous: Promise<unknown> = Promise.resolve();

/** Runs Maven with these arguments, when the Maven before it has ended. @throws as `world.run` does */
export function runMaven(
  world: World,
  args: readonly string[],
  { env, ...options }: RunOptions = {},
): Promise<string> {
  const command = ["mvn", "--quiet", "--batch-mode", ...RETRIES, ...args] as const;
  const virtualMachine = [process.env["MAVEN_OPTS"] ?? "", ...shortLived].join(" ").trim();
  const run = () => world.run(command, { ...options, env: { ...env, MAVEN_OPTS: virtualMachine } });
  const result = previous.then(run, run);
  previous = result.catch(() => undefined);
  return result;
}
