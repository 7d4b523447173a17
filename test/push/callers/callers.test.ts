/** Whose access token is taken, by what it says and by the issuer's keys; revocation is in another file. */
import { randomUUID } from "node:crypto";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Callers, createCallers } from "../../../src/push/callers/callers.ts";
import { forgedJwts, genuinely } from "../../auth/tokens/forged-jwts.ts";
import { captureLog } from "../../support/captured-log.ts";
import { type MovableClock, movableClock } from "../../support/movable-clock.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { type Issuer, newKey, type SigningKey, startIssuer } from "./issuer.ts";

const unavailable = { kind: { code: "unavailable", status: 503 } };

let issuer: Issuer;
let key: SigningKey;
const cleanup = suiteCleanup();
beforeAll(async () => {
  issuer = await startIssuer();
  cleanup.defer(() => issuer.stop());
  key = newKey("k-1");
});

let clock: MovableClock;
let callers: Callers & { close(): void };
beforeEach(() => {
  issuer.keys = [key];
  issuer.mood = "well";
  clock = movableClock();
  callers = createCallers({
    issuer: issuer.issuer,
    audience: undefined,
    userAppClientIds: ["app"],
    backofficeClientId: "office",
    introspection: undefined,
    clock,
    logger: captureLog().logger,
  });
});
afterEach(() => callers.close());

const ask = (token: string) => callers.user(`Bearer ${token}`);
const token = (changes?: object) => issuer.token(key, clock.now(), changes);

describe("a token", () => {
  test("of the users' application speaks for its user, and not for the back office", async () => {
    expect(await ask(token())).toEqual({ userId: "u-1", clientId: "app" });
    await expect(callers.backoffice(`Bearer ${token()}`)).rejects.toMatchObject({
      kind: { code: "forbidden", status: 403 },
    });
  });

  test("of the back office is that and no user's", async () => {
    const office = token({ client_id: "office" });
    expect(await callers.backoffice(`Bearer ${office}`)).toEqual({ clientId: "office" });
    await expect(ask(office)).rejects.toMatchObject({ kind: { status: 403 } });
  });

  test("of a client that acts for no user is no user's: of auth, and of Auth0", async () => {
    for (const gty of ["client_credentials", "client-credentials"])
      await expect(ask(token({ sub: "app", gty }))).rejects.toMatchObject({ kind: { status: 403 } });
    const office = token({ client_id: "office", gty: "client_credentials" });
    expect(await callers.backoffice(`Bearer ${office}`)).toEqual({ clientId: "office" });
  });

  test("of a third application is forbidden both", async () => {
    const third = `Bearer ${token({ client_id: "third" })}`;
    await expect(callers.user(third)).rejects.toMatchObject({ kind: { status: 403 } });
    await expect(callers.backoffice(third)).rejects.toMatchObject({ kind: { status: 403 } });
  });

  test("is taken under the scheme Bearer in any case, and under no other", async () => {
    const good = token();
    for (const scheme of ["Bearer", "bearer", "BEARER"]) {
      expect(await callers.user(`${scheme} ${good}`)).toBeDefined();
    }
    const refused = [undefined, "", good, "Bearer", "Bearer ", `Basic ${good}`, `Bearer ${good} `];
    refused.push(`Bearer\t${good}`, `Bearer ${good},Bearer ${good}`, `Bearer Bearer ${good}`, `DPoP ${good}`);
    for (const header of refused) expect(await callers.user(header), header).toBeUndefined();
  });

  // Identity providers may leave the jti out: nothing here depends on it.
  test.each(Object.keys(forgedJwts).filter((name) => !/\bjti\b/.test(name)))(
    "is refused: %s",
    async (name) => {
      const genuine = issuer.genuine(key, () => clock.now());
      expect(await ask(genuinely(genuine))).toBeDefined();
      const before = issuer.requests().length;
      expect(await ask((await forgedJwts[name]?.(genuine)) ?? "")).toBeUndefined();
      const heard = issuer.requests().slice(before);
      expect(heard.filter((path) => !/keys$|openid-configuration$/.test(path))).toEqual([]);
    },
  );

  const seconds = () => Math.floor(clock.now() / 1000);
  test.each<[string, () => object]>([
    ["of the issuer with a slash more", () => ({ iss: `${issuer.issuer}/` })],
    ["of an issuer in capitals", () => ({ iss: issuer.issuer.toUpperCase() })],
    ["without an issuer", () => ({ iss: undefined })],
    ["without a subject", () => ({ sub: undefined })],
    ["with an empty subject", () => ({ sub: "" })],
    ["with a number for a subject", () => ({ sub: 1 })],
    ["without a client", () => ({ client_id: undefined })],
    ["with a list of clients", () => ({ client_id: ["app"] })],
    ["without an expiry", () => ({ exp: undefined })],
    ["that expires now", () => ({ exp: seconds() })],
    ["whose expiry is text", () => ({ exp: String(seconds() + 900) })],
    ["whose expiry is 1e308", () => ({ exp: 1e308 })],
    ["of a minute from now", () => ({ nbf: seconds() + 60, iat: seconds() + 60 })],
    ["not before a minute from now", () => ({ nbf: seconds() + 60 })],
    ["without its time of issue", () => ({ iat: undefined })],
  ])("%s is refused", async (_, changes) => {
    expect(await ask(token())).toBeDefined();
    expect(await ask(token(changes()))).toBeUndefined();
  });

  test("whose times have fractions is taken until its expiry", async () => {
    const now = clock.now() / 1000;
    expect(await ask(token({ exp: now + 0.25, iat: now - 0.25, nbf: now - 0.25 }))).toBeDefined();
    expect(await ask(token({ exp: now, iat: now - 0.25, nbf: now - 0.25 }))).toBeUndefined();
  });

  test("of an issuer whose clock is 20 seconds ahead is taken", async () => {
    expect(await ask(token({ nbf: seconds() + 20, iat: seconds() + 20 }))).toBeDefined();
  });

  test("that was taken before is refused from the second on in which it expires", async () => {
    const good = token();
    expect(await ask(good)).toBeDefined();
    clock.move(899);
    expect(await ask(good)).toBeDefined();
    clock.move(1);
    expect(await ask(good)).toBeUndefined();
  });
});

describe("the issuer's keys", () => {
  test("are fetched once for many callers at once", async () => {
    const before = issuer.keySetFetches();
    await Promise.all(Array.from({ length: 50 }, () => ask(token())));
    expect(issuer.keySetFetches() - before).toBe(1);
  });

  test("are fetched once in 30 seconds at most, however many key ids are invented", async () => {
    await ask(token());
    clock.move(31);
    const before = issuer.keySetFetches();
    const invented = () => issuer.token({ ...key, kid: randomUUID() }, clock.now());
    // They are signed before: the issuer answers in this process, and has two seconds.
    const storm = () => Promise.all(Array.from({ length: 100 }, invented).map(ask));
    for (let wave = 0; wave < 10; wave += 1) {
      expect((await storm()).every((caller) => caller === undefined)).toBe(true);
    }
    expect(issuer.keySetFetches() - before).toBe(1);
    clock.move(29);
    await storm();
    expect(issuer.keySetFetches() - before).toBe(1);
    clock.move(1);
    await storm();
    expect(issuer.keySetFetches() - before).toBe(2);
  });

  test("a new one is found when the first token by it comes", async () => {
    await ask(token());
    const next = newKey("k-2");
    issuer.keys = [key, next];
    clock.move(31);
    expect(await ask(issuer.token(next, clock.now()))).toBeDefined();
    expect(await ask(token())).toBeDefined();
  });

  test("one that was withdrawn vouches for nothing any more, not for a token that was taken before either", async () => {
    const long = token({ exp: Math.floor(clock.now() / 1000) + 86_400 });
    expect(await ask(long)).toBeDefined();
    issuer.keys = [newKey("k-2")];
    clock.move(601);
    expect(await ask(long)).toBeUndefined();
  });

  test("another one under the same id is not taken for it", async () => {
    const long = token({ exp: Math.floor(clock.now() / 1000) + 86_400 });
    expect(await ask(long)).toBeDefined();
    issuer.keys = [newKey("k-1")];
    clock.move(601);
    expect(await ask(long)).toBeUndefined();
  });

  test("are used on while the issuer is away", async () => {
    expect(await ask(token())).toBeDefined();
    for (const mood of ["failing", "speaking for another"] as const) {
      issuer.mood = mood;
      clock.move(3600);
      expect(await ask(token()), mood).toBeDefined();
    }
  });

  test("while the issuer is away, nobody can say whether an unknown one is good", async () => {
    await ask(token());
    issuer.mood = "failing";
    clock.move(31);
    const unknown = issuer.token({ ...key, kid: "k-2" }, clock.now());
    await expect(ask(unknown)).rejects.toMatchObject(unavailable);
  });

  test.each(["silent", "failing", "redirecting", "speaking for another", "endless"] as const)(
    "where there are none yet and the issuer is %s, no token is taken or refused",
    async (mood) => {
      issuer.mood = mood;
      const started = stopwatch();
      await expect(ask(token())).rejects.toMatchObject(unavailable);
      expect(started()).toBeLessThan(4_500);
      issuer.mood = "well";
      clock.move(1);
      expect(await ask(token())).toBeDefined();
    },
  );

  test("a clock that was set back an hour stops nothing", async () => {
    await ask(token());
    clock.move(-3600);
    const next = newKey("k-2");
    issuer.keys = [key, next];
    expect(await ask(issuer.token(next, clock.now()))).toBeDefined();
  });
});
