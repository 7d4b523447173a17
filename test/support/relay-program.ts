/** A process that relays events of the auth service to its parent, and takes its time over the second: until it is told to go on. */

import { outbox, relayLeases } from "../../src/auth/schema.ts";
import { authMigrations } from "../../src/auth/service.ts";
import { openDatabase } from "../../src/platform/database/open.ts";
import type { CloudEvent } from "../../src/platform/messaging/cloud-event.ts";
import { relayOnce } from "../../src/platform/messaging/relay.ts";

const { db } = await openDatabase(JSON.parse(process.argv[2] ?? ""), authMigrations);
let delivered = 0;
function deliver({ subject }: CloudEvent): Promise<void> {
  return new Promise((resolve) => {
    delivered += 1;
    process.send?.(subject);
    if (delivered === 2) process.once("message", () => resolve());
    else resolve();
  });
}
await relayOnce({
  db,
  outbox,
  leases: relayLeases,
  source: "https://id.example.com/api/auth",
  subscribers: [{ deliver }],
});
process.exit();
