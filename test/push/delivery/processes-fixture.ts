/**
 * What the tests of several push processes share. They know nothing of how work is handed out: they look at the
 * provider's fake, which counts the messages of each device, and at the progress that operators see.
 */
import { once } from "node:events";
import type { Ledger, Repeat } from "../../../src/development/provider-fakes/ledger.ts";
import { startAuthServer } from "../../support/auth-server.ts";
import { addressOf, type PushProcess } from "../../support/push-server.ts";
import { type Backend, backends, type Environment } from "../../support/servers.ts";
import { type Operator, operatorOf, until } from "../end-to-end/operator.ts";
import { createWorld, type World, type WorldOptions } from "../end-to-end/world.ts";

/** A deployment of push processes only. */
export interface Deployment extends World {
  /** Starts a push process. */
  start(env?: Environment): Promise<PushProcess>;
  /** An operator who asks this process. */
  at(process: PushProcess): Promise<Operator>;
}

/** What the callers of deployments have their tokens from. */
export interface Issuer {
  readonly url: string;
  /** The Authorization header of an operator. */
  readonly as: string;
  stop(): Promise<void>;
}

export async function startIssuer(): Promise<Issuer> {
  const { origin, settings, stop } = await startAuthServer(backends.at(-1) ?? "PGlite");
  // Once for all deployments: where many ask at once, passwords are not checked in time.
  return { url: settings.issuer, as: `Bearer ${await addressOf(origin).backofficeToken()}`, stop };
}

/** Makes a deployment whose callers have tokens of the issuer, which no process asks about them. */
export async function deploy(
  issuer: Issuer,
  options: WorldOptions,
  backend: Backend = "PostgreSQL",
): Promise<Deployment> {
  const world = await createWorld(backend, options);
  const settings: Environment = {
    SERVICES: "push",
    IDENTITY_PROVIDER_ISSUER_URI: issuer.url,
    PLATFORM_SECURITY_URL: "",
    PLATFORM_SECURITY_API_KEY: "",
    TOKEN_AUDIENCE: "push",
  };
  return {
    ...world,
    start: (env) => world.start({ ...settings, ...env }),
    at: (process) => operatorOf(process, issuer.as),
  };
}

/** Stops the process, without its noticing. @returns lets it go on */
export function freeze({ child }: PushProcess): () => void {
  child.kill("SIGSTOP");
  return () => child.kill("SIGCONT");
}

/**
 * Sends to the zone, and waits until this process has begun so many messages of it, in which the other one has no part.
 * @returns the notification's id
 */
export async function sendBy(
  deployment: Deployment,
  process: PushProcess,
  beside: PushProcess,
  { zone, messages }: { readonly zone: number; readonly messages: number },
): Promise<string> {
  const accepted = () => deployment.fcm.ledger.summary().messages;
  const before = accepted();
  const thaw = freeze(beside);
  try {
    const id = await (await deployment.at(process)).send({ utcOffsets: [zone] });
    await until(`${messages} messages are out`, () => accepted() >= before + messages);
    return id;
  } finally {
    thaw();
  }
}

/** SIGTERM. Resolves when the process has ended. */
export async function terminate({ child }: PushProcess): Promise<void> {
  const exited = once(child, "exit");
  child.kill("SIGTERM");
  await exited;
}

/** How many messages this process has got a final response to, by its metrics. */
export async function messagesOf({ management }: PushProcess): Promise<number> {
  const metrics = await (await fetch(`${management}/metrics`)).text();
  const [, count] = /^gatepost_push_messages_total\{.*outcome="sent".*\} (\d+)$/m.exec(metrics) ?? [];
  return Number(count);
}

/** The names of the audience's devices, from the first to the last. */
export const deviceNames = (first: number, last: number): string[] =>
  Array.from({ length: last - first + 1 }, (_, index) => `device-${first + index}`);

/** The devices that have no message. */
export const missed = (ledger: Ledger, devices: readonly string[]): string[] =>
  devices.filter((device) => ledger.token(device) === undefined);

/** The devices that have a message more than once, in order, each as often as it was repeated. */
export const repeated = (ledger: Ledger): string[] =>
  ledger
    .repeats()
    .map(({ token }) => token)
    .toSorted();

/** Repeats of what was accepted only after this moment, in milliseconds since the epoch. */
export const repeatedSince = (ledger: Ledger, moment: number): Repeat[] =>
  ledger.repeats().filter(({ before }) => before.at > moment);

/** The longest time between the first messages of devices, in milliseconds. */
export function longestGap(ledger: Ledger): number {
  const times = ledger.tokens().flatMap(({ messages: [first] }) => (first ? [first.firstAt] : []));
  return Math.max(...times.slice(1).map((at, index) => at - (times[index] ?? at)));
}
