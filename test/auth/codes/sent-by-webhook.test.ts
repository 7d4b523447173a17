/** Codes end to end: an app begins at a server, behind a proxy, whose webhook gets the message. */
import { beforeAll, beforeEach, expect, test } from "vitest";
import { type Answer, type AuthApi, authApi } from "../../support/auth-api.ts";
import { eventsIn, withClients } from "../../support/auth-fleet.ts";
import { type AuthServer, startAuthServer } from "../../support/auth-server.ts";
import { appClient, newKeyPair, type PublicApp, publicApp } from "../../support/public-app.ts";
import { newMobilePhone } from "../../support/sent-code.ts";
import { type SmsFake, startWebhookFake } from "../../support/sms-fakes.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const secret = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
let fake: SmsFake;
let server: AuthServer;
let api: AuthApi;
let app: PublicApp;
const cleanup = suiteCleanup();

beforeAll(async () => {
  fake = cleanup.use(await startWebhookFake(secret));
  server = await startAuthServer("PGlite", {
    env: {
      ...withClients(appClient("app")),
      ...{ OTP_SENDER: "webhook", OTP_WEBHOOK_URL: fake.origin, OTP_WEBHOOK_SECRET: secret },
      ...{ OTP_REGIONS: "DE", OTP_RESEND_SECONDS: "1", OTP_SESSION_LIMIT: "2", OTP_PHONE_NETWORK_LIMIT: "3" },
      ...{ OTP_ADDRESS_LIMIT: "6", TRUSTED_PROXIES: "127.0.0.0/8" },
    },
  });
  cleanup.defer(() => server.stop());
  api = authApi(server.base);
  app = await newApp();
});
beforeEach(() => fake.behaves("takes"));

const newApp = async () =>
  publicApp({
    ...{ clientId: "app", issuer: server.settings.issuer, keys: await newKeyPair() },
    next: () => api,
    otp: codeOf,
  });

const takenBy = (phone: string) => fake.taken.filter((message) => message.phone === phone);
/** The code of the newest message that the phone has got, which is its first unless said otherwise. */
async function codeOf(phone: string, messages = 1): Promise<string> {
  await waitFor(() => expect(takenBy(phone).length).toBe(messages));
  return /\d{6}/.exec(takenBy(phone).at(-1)?.text ?? "")?.[0] ?? expect.fail("there is no code");
}
const someone = async () => (await api.newIdentity({ phone: newMobilePhone() })).phone;

let caller = 0;
/** The header of the proxy, for a caller of its own unless given. */
function from(address?: string): Record<string, string> {
  caller += 1;
  return { "X-Forwarded-For": `203.0.113.1, ${address ?? `198.51.100.${caller}`}` };
}
const sessionOf = ({ status, text, body }: Answer): string => {
  expect(status, text).toBe(403);
  return String(Object(body).auth_session);
};
/** Waits until a further code may be sent. */
async function afterInterval(send: () => Promise<Answer>): Promise<Answer> {
  const responses: Answer[] = [];
  await waitFor(async () => {
    responses.push(await send());
    expect(responses.at(-1)?.status).not.toBe(429);
  });
  return responses.at(-1) ?? expect.fail();
}

test("a signed message has the code by which its phone signs in", async () => {
  const phone = await someone();
  const auth_session = sessionOf(await app.begin(phone, {}, from()));
  const { status, body } = await app.challenge({ auth_session, otp: await codeOf(phone) });
  expect(status).toBe(200);
  expect((await app.exchange(Object(body).authorization_code)).status).toBe(200);
});

test("a webhook that hangs delays no response", async () => {
  fake.behaves("hangs");
  const phone = await someone();
  const before = fake.requests();
  const auth_session = sessionOf(await app.begin(phone, {}, from()));
  await waitFor(() => expect(fake.requests()).toBe(before + 1));
  sessionOf(await app.challenge({ auth_session, otp: "000000x" }));
  expect(takenBy(phone)).toEqual([]);
  fake.behaves("takes");
  await codeOf(phone);
});

test("a number of another region is refused, and nothing is sent", async () => {
  const before = fake.requests();
  const refused = await app.begin("+436641234567", {}, from());
  expect(refused).toMatchObject({ status: 403, body: { error: "access_denied" } });
  sessionOf(await app.begin(await someone(), {}, from()));
  await waitFor(() => expect(fake.requests()).toBe(before + 1));
});

test("behind a proxy the limit of an address is that of the caller, whatever else the caller writes", async () => {
  const limited = (response: Answer) => expect(response).toMatchObject({ status: 429 });
  for (let index = 0; index < 6; index += 1)
    sessionOf(await app.begin(newMobilePhone(), {}, from("192.0.2.1")));
  const phone = newMobilePhone();
  limited(await app.begin(phone, {}, from("192.0.2.1")));
  // The log has the prefix as it is, by which an operator finds whom it concerns, and no number.
  const data = { prefix: phone.slice(1, -4), clientId: "app", limit: "CODES_LIMIT_ADDRESS" };
  await waitFor(() =>
    expect(eventsIn(server.logs())).toContainEqual(expect.objectContaining({ data, subject: data.prefix })),
  );
  limited(await app.begin(newMobilePhone(), {}, { "X-Forwarded-For": "192.0.2.77, 192.0.2.1, 127.0.0.9" }));
  sessionOf(await app.begin(newMobilePhone(), {}, from("192.0.2.2")));
});

test("five wrong tries end a stranger's session, and the owner's goes on", async () => {
  const phone = await someone();
  const owners = sessionOf(await app.begin(phone, {}, from()));
  const otp = await codeOf(phone);
  const stranger = await newApp();
  const strangers = from();
  const theirs = sessionOf(await afterInterval(() => stranger.begin(phone, {}, strangers)));
  for (let tries = 1; tries <= 5; tries += 1) {
    const tried = await stranger.challenge({ auth_session: theirs, otp: `${tries}-wrong` });
    const error = tries < 5 ? "insufficient_authorization" : "invalid_session";
    expect(tried.body).toMatchObject({ error });
  }
  const right = await stranger.challenge({ auth_session: theirs, otp: await codeOf(phone, 2) });
  expect(right).toMatchObject({ status: 400, body: { error: "invalid_session" } });
  expect((await app.challenge({ auth_session: owners, otp })).status).toBe(200);
});

test("an unknown phone gets the responses of a known one: begin, wrong codes, resends, limits", async () => {
  async function walk(phone: string) {
    const headers = from();
    const responses: Answer[] = [];
    const note = (response: Answer) => {
      responses.push(response);
      return response;
    };
    const auth_session = sessionOf(note(await app.begin(phone, {}, headers)));
    note(await app.begin(phone, {}, headers));
    note(await app.challenge({ auth_session, otp: "wrong" }));
    note(await app.challenge({ auth_session }, headers));
    note(await afterInterval(() => app.challenge({ auth_session }, headers)));
    // No more for the session, then none for the phone in this network.
    note(await app.challenge({ auth_session }, headers));
    note(await afterInterval(() => app.begin(phone, {}, headers)));
    note(await app.begin(phone, {}, headers));
    for (let tries = 0; tries < 4; tries += 1) note(await app.challenge({ auth_session, otp: "wrong" }));
    return responses.map(({ status, headers: sent, text }) => ({
      status,
      headers: [...sent.keys()].sort(),
      // Seconds that are left go by; of the session, the length is the same.
      text: text.replace(/\b(59\d|600|8639\d|86400)\b/g, "…").replace(/"[\w-]{43}"/, '"…"'),
    }));
  }
  const [known, unknown] = [await walk(await someone()), await walk(newMobilePhone())];
  expect(unknown).toEqual(known);
  expect(known.map(({ status }) => status)).toEqual([
    ...[403, 429, 403, 429, 403, 429, 403, 429],
    ...[403, 403, 403, 400],
  ]);
});

test("the end of the process waits for what is on its way", async () => {
  fake.behaves("hangs");
  const phone = await someone();
  const before = fake.requests();
  sessionOf(await app.begin(phone, {}, from()));
  await waitFor(() => expect(fake.requests()).toBe(before + 1));
  let isStopped = false;
  const stopped = server.stop().then(() => {
    isStopped = true;
  });
  await waitFor(() => expect(fetch(server.origin)).rejects.toThrow());
  expect(isStopped).toBe(false);
  fake.behaves("takes");
  await stopped;
  expect(takenBy(phone).length).toBe(1);
});
