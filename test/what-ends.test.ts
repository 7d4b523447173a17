/** The table of docs/auth/sessions.md, cell by cell: what ends which sessions and what is begun, and which devices go. */
import { beforeAll, describe, expect, test } from "vitest";
import { type AuthApi, authApi, basic, internal, newPhone, type TokenPair } from "./support/auth-api.ts";
import { withClients } from "./support/auth-fleet.ts";
import { type AuthStore, createAuthStore } from "./support/auth-store.ts";
import { openFront } from "./support/front.ts";
import { appClient, newKeyPair, type PublicApp, publicApp } from "./support/public-app.ts";
import { type PushServer, startPushServer } from "./support/push-server.ts";
import { generousLimits, newMobilePhone, sentCode } from "./support/sent-code.ts";
import { backends } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";

const secrets = ["one-secret", "another-secret"] as const;
const shop = { clientId: "shop", grantTypes: ["auth", "refresh_token"], scopes: ["sessions"] };
const other = { clientId: "other", clientSecret: "other-secret", grantTypes: ["auth"] };
/** Push takes the tokens of one client; another one's sessions have no devices. */
const env = { USER_APP_CLIENT_ID: "shop", ...generousLimits };
/** An app without a secret, in which the user has begun to sign in. */
const app = appClient("shop-app");
const listing = (...listed: object[]) => ({ ...env, ...withClients(...listed) });

/** A user with two sessions of the shop's app, `first` and `second`, each with a device, and one of another client. */
interface User {
  readonly id: string;
  readonly phone: string;
  readonly first: TokenPair;
  readonly second: TokenPair;
  readonly third: TokenPair;
}

const all = ["first", "second", "third"] as const;
type Session = (typeof all)[number];

/** Two challenges of the user that have got no code yet. */
type Begun = readonly [Challenge, Challenge];

interface Challenge {
  readonly app: PublicApp;
  /** What the app sends for an authorization code. */
  readonly right: { readonly auth_session: string; readonly otp: string };
}

interface Row {
  readonly what: string;
  /** Whether challenges end, with and without an authorization code; unless given, they go on. */
  readonly endsBegun?: true;
  readonly ends: readonly Session[];
  /** Of the two devices; those of the sessions that end unless given. */
  readonly devicesGo?: readonly Session[];
  run(user: User): Promise<{ status: number }>;
}

describe.runIf(backends.includes("PostgreSQL"))("what ends what", () => {
  let store: AuthStore;
  let front: Awaited<ReturnType<typeof openFront>>;
  let server: PushServer;
  let api: AuthApi;
  let shopAs: string = basic("shop", secrets[0]);
  let keys: PublicApp["keys"];
  const users = new Map<Row, { user: User; begun: Begun }>();
  const cleanup = suiteCleanup();
  async function start(listed: Record<string, string>): Promise<void> {
    const OAUTH_SERVER_ISSUER = `${front.origin}/api/auth`;
    server = await startPushServer("PostgreSQL", { env: { ...store.env, OAUTH_SERVER_ISSUER, ...listed } });
    front.leadTo(Number(new URL(server.origin).port));
    api = authApi(server.authBase);
  }
  beforeAll(async () => {
    store = await createAuthStore("PostgreSQL");
    cleanup.defer(() => store.drop());
    front = await openFront();
    cleanup.defer(() => front.close());
    await start(listing({ ...shop, clientSecret: secrets[0] }, other, app));
    cleanup.defer(() => server.stop());
    keys = await newKeyPair();
    // All at once, as a phone gets its second code a second after the first.
    await Promise.all(rows.map(async (row) => users.set(row, await signIn().then(begin))));
  });

  async function register(user: string, session: Session, { access_token }: TokenPair): Promise<void> {
    const expiration = new Date(Date.now() + 3_600_000).toISOString();
    const response = await fetch(`${server.base}/v1/pushprovider/token`, {
      method: "POST",
      headers: { authorization: `Bearer ${access_token}`, "content-type": "application/json" },
      body: JSON.stringify({ token: `${session} ${user}`, expiration }),
    });
    expect(response.status).toBe(204);
  }

  async function signIn(): Promise<User> {
    const { id, phone } = await api.newIdentity({ phone: newMobilePhone() });
    const first = await api.newPair(id, shopAs);
    const second = await api.newPair(id, shopAs);
    const third = await api.newPair(id, basic("other", "other-secret"));
    await register(id, "first", first);
    await register(id, "second", second);
    return { id, phone, first, second, third };
  }

  async function begin(user: User): Promise<{ user: User; begun: Begun }> {
    const { phone } = user;
    const issuer = `${front.origin}/api/auth`;
    const otp = () => sentCode([server], phone);
    async function challenge(): Promise<Challenge> {
      const app = publicApp({ clientId: "shop-app", issuer, keys, next: () => api, otp });
      const auth_session = await app.session(phone);
      return { app, right: { auth_session, otp: await otp() } };
    }
    return { user, begun: [await challenge(), await challenge()] };
  }

  async function codeOf({ app, right }: Challenge): Promise<string> {
    const { status, text, body } = await app.challenge(right);
    expect(status, text).toBe(200);
    return String(Object(body).authorization_code);
  }
  /** What comes of exchanges: of a code from before, and of one that the other challenge gets now. */
  async function exchanges([first, second]: Begun, code: string): Promise<string[]> {
    const early = await first.app.exchange(code);
    const challenged = await second.app.challenge(second.right);
    const isRight = challenged.status === 200;
    const late = isRight ? await second.app.exchange(Object(challenged.body).authorization_code) : challenged;
    return [early, late].map(({ status, body }) => (status === 200 ? "tokens" : Object(body).error));
  }

  async function activeOf(user: User): Promise<Session[]> {
    const active = await Promise.all(
      all.map(async (session) => (await api.introspect(user[session].access_token)).active),
    );
    return all.filter((_, index) => active[index]);
  }

  async function devicesOf({ id }: User): Promise<string[]> {
    const found = await store.read((query) =>
      query(`select token from push.devices where user_id = '${id}' order by token`),
    );
    return found.map(({ token }) => String(token).split(" ")[0] ?? "");
  }

  const asUser = ({ second }: User) => ({ as: `Bearer ${second.access_token}` });
  const ofUser = ({ id }: User) => ({ as: internal, path: { id } });
  const idOf = ({ access_token }: TokenPair): string =>
    JSON.parse(Buffer.from(access_token.split(".")[1] ?? "", "base64url").toString()).sid;
  const password = { password: "correct horse battery staple" };
  const revoke = (token: string) => api.call("revokeToken", { as: shopAs, form: { token } });

  const rows: Row[] = [
    {
      what: "a password set",
      ends: all,
      endsBegun: true,
      run: (user) => api.call("setIdentityPassword", { ...ofUser(user), json: password }),
    },
    {
      what: "a password removed",
      ends: all,
      endsBegun: true,
      run: (user) => api.call("removeIdentityPassword", ofUser(user)),
    },
    {
      what: "a phone changed",
      ends: [],
      endsBegun: true,
      run: (user) => api.call("updateIdentity", { ...ofUser(user), json: { phone: newPhone() } }),
    },
    {
      what: "an e-mail address changed",
      ends: [],
      run: (user) =>
        api.call("updateIdentity", { ...ofUser(user), json: { email: `${user.id}@example.com` } }),
    },
    {
      what: "an identity deleted",
      ends: all,
      endsBegun: true,
      run: (user) => api.call("deleteIdentity", ofUser(user)),
    },
    {
      what: "an identity deleted and made anew, with the same phone",
      ends: all,
      endsBegun: true,
      async run(user) {
        await api.call("deleteIdentity", ofUser(user));
        await api.newIdentity({ id: user.id, phone: user.phone });
        const anew = await api.newPair(user.id, shopAs);
        return { status: (await api.introspect(anew.access_token)).active ? 204 : 500 };
      },
    },
    { what: "a refresh token revoked", ends: ["first"], run: ({ first }) => revoke(first.refresh_token) },
    {
      what: "an access token revoked",
      ends: ["first"],
      devicesGo: [],
      run: ({ first }) => revoke(first.access_token),
    },
    {
      what: "a replaced refresh token used again",
      ends: ["first"],
      async run({ first }) {
        const { text } = await api.refresh(first.refresh_token, shopAs);
        await api.refresh(JSON.parse(text).refresh_token, shopAs);
        return { status: (await api.refresh(first.refresh_token, shopAs)).status === 400 ? 204 : 500 };
      },
    },
    {
      what: "one session ended by an operator",
      ends: ["first"],
      run: (user) =>
        api.call("endAuthorization", {
          as: internal,
          path: { id: user.id, authorizationId: idOf(user.first) },
        }),
    },
    {
      what: "all sessions ended by an operator",
      ends: all,
      endsBegun: true,
      run: (user) => api.call("endAllAuthorizations", ofUser(user)),
    },
    {
      what: "one session ended by the user",
      ends: ["first"],
      run: (user) =>
        api.call("endOwnAuthorization", { ...asUser(user), path: { authorizationId: idOf(user.first) } }),
    },
    {
      what: "the other sessions ended by the user",
      ends: ["first", "third"],
      endsBegun: true,
      run: (user) => api.call("endAllOwnAuthorizations", { ...asUser(user), query: "?except=current" }),
    },
    {
      what: "all sessions ended by the user",
      ends: all,
      endsBegun: true,
      run: (user) => api.call("endAllOwnAuthorizations", asUser(user)),
    },
    {
      what: "an organization ended that has the user's id",
      ends: [],
      run: (user) => api.call("endOrganizationAuthorizations", ofUser(user)),
    },
  ];

  const left = (gone: readonly Session[]) => all.filter((session) => !gone.includes(session));
  async function expectLeft(user: User, { ends, devicesGo = ends }: Pick<Row, "ends" | "devicesGo">) {
    expect(await activeOf(user)).toEqual(left(ends));
    const devices = left(devicesGo).filter((session) => session !== "third");
    await expect.poll(() => devicesOf(user), { timeout: 10_000 }).toEqual(devices);
  }

  /** Whatever events there were before have been acted on once this one has. */
  async function untilHeard(): Promise<void> {
    const last = await signIn();
    await revoke(last.first.refresh_token);
    await expect.poll(() => devicesOf(last), { timeout: 10_000 }).toEqual(["second"]);
  }

  test.each(rows)("$what", async (row) => {
    const { user, begun } = users.get(row) ?? expect.fail("there is one for each row");
    const code = await codeOf(begun[0]);
    expect((await row.run(user)).status).toBeLessThan(300);
    await expectLeft(user, row);
    expect(await exchanges(begun, code)).toEqual(Array(2).fill(row.endsBegun ? "invalid_grant" : "tokens"));
    if ((row.devicesGo ?? row.ends).length > 0) return;
    await untilHeard();
    await expectLeft(user, row);
  });

  test("a client disabled, and listed again with another secret", async () => {
    const { user, begun } = await signIn().then(begin);
    const code = await codeOf(begun[0]);
    await server.stop();
    await start(listing(other));
    expect(await activeOf(user)).toEqual(["third"]);
    expect(await exchanges(begun, code)).toEqual(["invalid_client", "invalid_session"]);
    expect(await devicesOf(user)).toEqual(["first", "second"]);
    const { text } = await api.call("listAuthorizations", { ...ofUser(user), query: "?size=3" });
    const states = JSON.parse(text).content.map(
      (one: { state: string; reason?: string }) => one.reason ?? one.state,
    );
    expect(states).toEqual(["ACTIVE", "CLIENT_DISABLED", "CLIENT_DISABLED"]);
    await server.stop();
    await start(listing({ ...shop, clientSecret: secrets[1] }, other, app));
    shopAs = basic("shop", secrets[1]);
    await expectLeft(user, { ends: [] });
    expect(await exchanges(begun, code)).toEqual(["tokens", "tokens"]);
    expect((await api.refresh(user.first.refresh_token, shopAs)).status).toBe(200);
    await untilHeard();
    await expectLeft(user, { ends: [] });
  });
});
