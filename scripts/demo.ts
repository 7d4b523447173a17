/**
 * `npm run demo`: the whole life of a user, in real calls to the server that `npm start` runs. Every response
 * is checked against the contract and against the expectations of the step; the first difference ends the demo.
 *
 * `GATEPOST_URL` and `GATEPOST_GRPC` name a server elsewhere. `DEMO_TRANSCRIPT` is explained in
 * demo/transcript.ts.
 */

import { readArguments } from "../src/command.ts";
import { say, usageIn } from "./command.ts";
import { signInFromApp } from "./demo/app.ts";
import { type Addresses, type Calls, createCalls } from "./demo/calls.ts";
import { Mismatch } from "./demo/mismatch.ts";
import { findNothing, notify } from "./demo/notifications.ts";
import { labelled, showChapter, styled } from "./demo/screen.ts";
import { obstacle, readAddresses } from "./demo/server.ts";
import { register, signIn } from "./demo/signing-in.ts";
import { createStage, type Stage } from "./demo/stage.ts";
import { change, introspect, refresh, revoke, sayGoodbye, verifyLocally } from "./demo/tokens.ts";

readArguments({ usage: usageIn(import.meta.filename), options: {} });

async function life(stage: Stage): Promise<void> {
  showChapter("A user appears");
  await register(stage);
  showChapter("The app signs the user in, with no secret in it");
  const first = await signInFromApp(stage);
  showChapter("Tokens at work");
  const active = await introspect(stage, first);
  await verifyLocally(stage, first.access_token, active);
  const second = await refresh(stage, first);
  showChapter("A notification");
  await notify(stage, second);
  showChapter("The app signs out");
  await revoke(stage, second);
  showChapter("Five grants for back ends");
  await signIn(stage);
  showChapter("Everything ends");
  await change(stage);
  await sayGoodbye(stage);
  await findNothing(stage);
}

/** Deletes the users of a demo that ended early. Ignores errors: there may be no user, or no server. */
async function cleanUp({ http }: Addresses, { user, operator, credentials }: Stage): Promise<string> {
  const remove = (id: string) =>
    fetch(`${http}/api/auth/v1/identities/${id}`, {
      method: "DELETE",
      headers: { authorization: credentials.internal },
      signal: AbortSignal.timeout(5_000),
    }).catch(() => undefined);
  await remove(operator.id);
  const response = await remove(user.id);
  if (response?.status === 204) return `The identity ${user.id} has been deleted again.`;
  if (response?.status === 404) return "It has left no identity behind.";
  return `The identity ${user.id} could not be deleted.`;
}

/** @returns whether every response was as expected */
async function perform(addresses: Addresses, calls: Calls): Promise<boolean> {
  const stage = createStage(calls);
  const interrupt = () => void cleanUp(addresses, stage).then(() => process.exit(130));
  process.once("SIGINT", interrupt);
  try {
    await life(stage);
    say(styled("green", `\n${stage.current().number} steps, all as the contract says`));
    return true;
  } catch (thrown) {
    const { number, heading } = stage.current();
    const what =
      thrown instanceof Mismatch
        ? `${labelled("✗ expected", thrown.expected)}\n${labelled("  got", thrown.got)}`
        : labelled("✗ failed", String(thrown instanceof Error ? thrown.stack : thrown));
    process.stderr.write(`${styled("red", what)}\n\n`);
    process.stderr.write(
      `The demo ended at step ${number} (${heading}). ${await cleanUp(addresses, stage)}\n`,
    );
    return false;
  } finally {
    process.removeListener("SIGINT", interrupt);
  }
}

const addresses = readAddresses(process.env);
const problem = addresses
  ? await obstacle(addresses)
  : "GATEPOST_URL must be a URL, and GATEPOST_GRPC a host and a port.";
if (addresses && problem === undefined) {
  say(styled("dim", `The life of a user, at ${addresses.http} and, for gRPC, ${addresses.grpc}`));
  const calls = createCalls(addresses);
  if (!(await perform(addresses, calls))) process.exitCode = 1;
  calls.close();
} else {
  process.stderr.write(`${styled("red", problem ?? "")}

Start the server in another terminal, then run the demo again:

    npm start
    npm run demo

If it listens elsewhere, say where, as the server does when it is ready:

    GATEPOST_URL=http://127.0.0.1:8080 GATEPOST_GRPC=127.0.0.1:9090 npm run demo
`);
  process.exitCode = 1;
}
