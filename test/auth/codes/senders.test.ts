/** What hands messages over, each against a fake: one contract for all of them. */
import { beforeAll, describe, expect, test } from "vitest";
import { createOutgoingMessages, senderOf } from "../../../src/auth/codes/outgoing-messages.ts";
import { MessageRefused, type SendMessage } from "../../../src/auth/codes/text-message.ts";
import { createTwilioClient } from "../../../src/auth/codes/twilio-client.ts";
import { createWebhookClient } from "../../../src/auth/codes/webhook-client.ts";
import { captureLog } from "../../support/captured-log.ts";
import {
  type SmsFake,
  standardSignature,
  startTwilioFake,
  startWebhookFake,
} from "../../support/sms-fakes.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const whsec = (byte: number) => `whsec_${Buffer.alloc(32, byte).toString("base64")}`;
const account = { accountSid: `AC${"0".repeat(32)}`, from: "+12025550199" };
const token = "a-token-of-twilio-s";

const message = {
  id: "msg_1",
  phone: "+12025550100",
  code: "482913",
  text: "Your code is 482913.\n@example.com #482913",
};

const senders = [
  {
    name: "a webhook",
    start: () => startWebhookFake(whsec(1)),
    client: (origin: string) => createWebhookClient({ url: `${origin}/codes`, secrets: [whsec(1)] }),
    // The fake knows the old one of two.
    alsoRight: (origin: string) => createWebhookClient({ url: origin, secrets: [whsec(2), whsec(1)] }),
    wrong: (origin: string) => createWebhookClient({ url: origin, secrets: [whsec(2)] }),
    refusal: "the webhook's response is 400",
    unreachable: "no connection to OTP_WEBHOOK_URL",
  },
  {
    name: "Twilio",
    start: () => startTwilioFake(account.accountSid, token),
    client: (endpoint: string) => createTwilioClient({ ...account, endpoint, authToken: token }),
    alsoRight: (endpoint: string) =>
      createTwilioClient({ ...account, from: `MG${"0".repeat(32)}`, endpoint, authToken: token }),
    wrong: (endpoint: string) => createTwilioClient({ ...account, endpoint, authToken: "another" }),
    refusal: "Twilio's response is 400, error 21408",
    unreachable: "no connection to Twilio",
  },
];

describe.each(senders)("$name", ({ start, client, alsoRight, wrong, refusal, unreachable }) => {
  let fake: SmsFake;
  let before = 0;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    fake = cleanup.use(await start());
  });

  const never = () => new AbortController().signal;
  /** The error of a message that is not taken, after one request. */
  async function failure(send: SendMessage, signal = never()): Promise<unknown> {
    before = fake.requests();
    const error = await send(message, signal).then(
      () => undefined,
      (thrown: unknown) => thrown,
    );
    expect(error).toBeInstanceOf(Error);
    return error;
  }

  test("gets phone and text, with credentials, once", async () => {
    await client(fake.origin)(message, never());
    await alsoRight(fake.origin)(message, never());
    const taken = { phone: message.phone, text: message.text };
    expect(fake.taken).toEqual([taken, taken]);
    expect(fake.requests()).toBe(2);
  });

  test("is not believed with wrong credentials", async () => {
    expect(await failure(wrong(fake.origin))).toBeInstanceOf(MessageRefused);
  });

  test("refuses with a reason that has neither phone nor code", async () => {
    fake.behaves("refuses");
    expect(await failure(client(fake.origin))).toEqual(new MessageRefused(refusal));
    expect(fake.requests() - before).toBe(1);
  });

  test("is not followed elsewhere", async () => {
    fake.behaves("redirects");
    expect(await failure(client(fake.origin))).toBeInstanceOf(MessageRefused);
    expect(fake.requests() - before).toBe(1);
  });

  test("that says nothing may have sent the message, and is not asked again", async () => {
    fake.behaves("hangs");
    expect(await failure(client(fake.origin), AbortSignal.timeout(300))).not.toBeInstanceOf(MessageRefused);
    expect(fake.requests() - before).toBe(1);
  });

  test("that cannot be reached has sent nothing, and the log says what to look at", async () => {
    const error = await failure(client("http://127.0.0.1:1"));
    expect(error).toEqual(new MessageRefused(unreachable));
    expect(error).toHaveProperty("cause.code", "ECONNREFUSED");
  });
});

test("the fake of the webhook verifies as the libraries of Standard Webhooks do", () => {
  // The example that all of them are tested with.
  const [secret, id] = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"];
  const signature = standardSignature(secret, id, "1614265330", '{"test": 2432232314}');
  expect(signature.toString("base64")).toBe("g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
});

test("in development the log has the message, with the phone masked", async () => {
  const log = captureLog();
  await senderOf({ kind: "log" }, log.logger)(message, AbortSignal.timeout(1_000));
  expect(log.text()).toContain("482913");
  expect(log.text()).not.toContain(message.phone);
});

describe("messages that are on their way", () => {
  test("are handed over after the current work, bounded, and waited for at the end", async () => {
    const outcomes: string[] = [];
    const releases: (() => void)[] = [];
    const log = captureLog();
    const messages = createOutgoingMessages({
      sendMessage: async () => {
        await new Promise<void>((release) => void releases.push(release));
        if (outcomes.length === 0) throw new MessageRefused("the webhook's response is 500");
        if (outcomes.length === 1) throw new Error("it says nothing");
      },
      observer: { message: (outcome) => void outcomes.push(outcome) },
      logger: log.logger,
    });
    for (let count = 0; count < 128; count += 1) messages.send(message);
    expect(releases.length).toBe(0);
    expect(() => messages.refuseIfFull()).toThrow("More requests arrive");
    await waitFor(() => expect(releases.length).toBe(128));
    let isDrained = false;
    const drained = messages.drain().then(() => {
      isDrained = true;
    });
    while (outcomes.length < 128) {
      expect(isDrained).toBe(false);
      for (const release of releases.splice(0, 1)) release();
      await new Promise(setImmediate);
    }
    await drained;
    messages.refuseIfFull();
    expect(outcomes.slice(0, 3)).toEqual(["refused", "unknown", "sent"]);
    expect(log.lines().map(({ msg }) => msg)).toEqual([
      "A code was not sent",
      "It is not known whether a code was sent",
    ]);
    expect(log.text()).not.toContain(message.code);
  });
});
