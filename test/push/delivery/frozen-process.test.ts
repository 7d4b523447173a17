/** A process that is frozen for so long that it is taken for dead wakes among those that have done its work. */
import { expect, test } from "vitest";
import { backends } from "../../support/servers.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { atRest } from "../../support/wait-for.ts";
import { until } from "../end-to-end/operator.ts";
import {
  deploy,
  deviceNames,
  freeze,
  messagesOf,
  missed,
  repeatedSince,
  sendBy,
  startIssuer,
} from "./processes-fixture.ts";

const [large, small] = [0, 60];
/** More devices than a process sends to at once: the rest of them is left when it is frozen. */
const inLarge = 2_000;
const inSmall = 100;
const offsets = [small, ...Array.from({ length: inLarge / inSmall }, () => large)];
const devices = inLarge + inSmall;
const audience = { devices, users: devices, offsets };

const cleanup = suiteCleanup();

test.runIf(backends.includes("PostgreSQL"))(
  "it takes nothing back from them and overwrites nothing, and works on",
  async () => {
    const issuer = await startIssuer();
    cleanup.defer(() => issuer.stop());
    const deployment = await deploy(issuer, { audience });
    cleanup.defer(() => deployment.end());
    const [sleeper, other] = await Promise.all([deployment.start(), deployment.start()]);
    const operator = await deployment.at(other);
    const { ledger } = deployment.fcm;

    // There are always messages in flight.
    deployment.fcm.play({ delayMs: 1_000 });
    const id = await sendBy(deployment, sleeper, other, { zone: large, messages: 100 });
    const wake = freeze(sleeper);
    const accepted = await atRest(() => ledger.summary().messages);
    expect(accepted).toBeLessThan(inLarge);
    const frozenAt = Date.now();
    await until("the other has taken over", () => ledger.summary().messages > accepted, 100);
    wake();
    const ended = await operator.ended(id, 100);
    expect(ended).toMatchObject({
      ...{ state: "COMPLETED", recipients: inLarge, planned: inLarge, sent: inLarge },
      ...{ failed: 0, dropped: 0, deadLettered: 0, remaining: 0 },
    });
    expect(missed(ledger, deviceNames(1, devices))).toHaveLength(inSmall);
    expect(ledger.summary().tokensNotifiedTwice).toBe(0);
    // What was in flight is repeated, once; what the other sends is sent by nobody else.
    expect(repeatedSince(ledger, frozenAt)).toEqual([]);
    expect(ledger.summary().repeats).toBeLessThanOrEqual(accepted);

    const before = await messagesOf(sleeper);
    const next = await sendBy(deployment, sleeper, other, { zone: small, messages: inSmall });
    expect(await operator.ended(next)).toMatchObject({ state: "COMPLETED", sent: inSmall });
    expect(await messagesOf(sleeper)).toBe(before + inSmall);
    expect(await operator.progress(id)).toEqual(ended);
    expect(repeatedSince(ledger, frozenAt)).toEqual([]);
  },
  200_000,
);
