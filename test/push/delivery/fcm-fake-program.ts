/** An FCM fake in a process of its own. Prints its origin and credentials; a line on standard input asks for its ledger. */
import { createInterface } from "node:readline";
import { startFcmFake } from "../../../src/development/provider-fakes/fcm/fcm.ts";

const fake = await startFcmFake();
const { origin, credentials } = fake;
process.stdout.write(`${JSON.stringify({ origin, credentials })}\n`);
for await (const _line of createInterface({ input: process.stdin })) {
  const { user, system } = process.cpuUsage();
  process.stdout.write(
    `${JSON.stringify({ ...fake.ledger.summary(), cpuSeconds: (user + system) / 1e6 })}\n`,
  );
}
await fake.close();
