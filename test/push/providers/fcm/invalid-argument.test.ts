/** Which 400s of FCM are about the token: a dead one for its field, or for FCM's own words where no field is named. */
import { beforeAll, expect, test } from "vitest";
import { type FcmFake, startFcmFake } from "../../../../src/development/provider-fakes/fcm/fcm.ts";
import type { FcmProvider } from "../../../../src/push/providers/fcm/fcm.ts";
import { suiteCleanup } from "../../../support/suite-cleanup.ts";
import { fcmOf, sendOne } from "../providers-fixture.ts";

let fake: FcmFake;
let fcm: FcmProvider;

const cleanup = suiteCleanup();
beforeAll(async () => {
  fake = await startFcmFake();
  cleanup.defer(() => fake.close());
  fcm = fcmOf(fake);
  cleanup.defer(() => fcm.close());
});

const words = "The registration token is not a valid FCM registration token";
const violation = (field: string) => [{ fieldViolations: [{ field, description: words }] }];

test.each([
  ["that names the token by its field", "Invalid", violation("message.token"), "dead"],
  ["that names the token in words, without a field", words, [], "dead"],
  ["that names the token in words, without details", words, undefined, "dead"],
  ["of other words", `${words} of this app`, [], "failed"],
  ["about anything", "Request contains an invalid argument.", [], "failed"],
  ["about another field", words, violation("message.topic"), "failed"],
])("400 INVALID_ARGUMENT %s", async (_, message, details, kind) => {
  const body = JSON.stringify({ error: { status: "INVALID_ARGUMENT", message, details } });
  fake.play({ answer: { status: 400, body }, times: 1 });
  expect(await sendOne(fcm, "token")).toEqual({ kind, reason: "400 INVALID_ARGUMENT" });
});

test("400 about a token in words, as FCM writes it", async () => {
  fake.play({ answer: "INVALID_TOKEN_IN_WORDS", times: 1 });
  expect(await sendOne(fcm, "token")).toEqual({ kind: "dead", reason: "400 INVALID_ARGUMENT" });
});
