/** What becomes of a session in its store, with an auth that is made up. */
import { describe, expect, test } from "vitest";
import type { Platform } from "../../../packages/client/src/platform.ts";
import { createSession } from "../../../packages/client/src/session.ts";
import { memoryStore, type SessionStore } from "../../../packages/client/src/store.ts";

const accessToken = (number: number, sub = "ada") => `e30.${btoa(JSON.stringify({ sub, number }))}.`;
const pair = (number: number, sub?: string) => ({
  access_token: accessToken(number, sub),
  refresh_token: `R${number}`,
  expires_in: 900,
});
const refusal = (error: string, status = 400) => Response.json({ error }, { status });
const keyOf = (x: string) => ({
  publicJwk: { kty: "EC", crv: "P-256", x, y: "y" } as const,
  sign: async () => new Uint8Array(64),
});

interface Options {
  readonly store?: SessionStore;
  /** The x of the key. */
  readonly key?: string;
  readonly graceSeconds?: number;
  readonly platform?: Partial<Platform>;
}

/** @param respond to `tokens <refresh token>` and `revoke <token>`; with a new pair and a 200 unless given */
function instance(
  options: Options = {},
  respond?: (sent: string) => Response | Promise<Response | undefined> | undefined,
) {
  const { store = memoryStore(), key, graceSeconds = 30 } = options;
  const sent: string[] = [];
  const endings: string[] = [];
  const slept: number[] = [];
  let elapsed = 0;
  const pass = (seconds: number) => {
    elapsed += seconds * 1000;
  };
  const platform: Partial<Platform> = {
    async fetch(url, init) {
      const form = new URLSearchParams(String(init?.body));
      const token = form.get("refresh_token") ?? form.get("token") ?? "";
      const request = `${String(url).split("/").at(-1)} ${token}`;
      sent.push(request);
      const response = await respond?.(request);
      return response ?? Response.json(request.startsWith("tokens") ? pair(Number(token.slice(1)) + 1) : {});
    },
    monotonic: () => elapsed,
    async sleep(ms) {
      slept.push(ms);
      pass(ms / 1000);
    },
    ...options.platform,
  };
  const session = createSession({
    ...{ authUrl: "https://auth.example", client: { clientId: "app" }, store, graceSeconds, platform },
    signer: key === undefined ? undefined : keyOf(key),
    onSignedOut: (reason) => void endings.push(reason),
  });
  return { session, store, sent, endings, slept, pass };
}

const never = () => new Promise<never>(() => undefined);
/** A text of a session, as another tab or an earlier start has left it. */
const textOf = (number: number, more: object = {}, userId = "ada") => {
  const token = accessToken(number, userId);
  const session = { accessToken: token, refreshToken: `R${number}`, expiresIn: 900, userId };
  return JSON.stringify({ session, ...more });
};
async function put(store: SessionStore, text: string | undefined): Promise<void> {
  expect(await store.replace(await store.read(), text)).toBe(true);
}

describe("an access token's age", () => {
  test.each([
    [900, 870],
    [40, 20],
  ])("of one for %d seconds: it is renewed after %d", async (expires_in, seconds) => {
    const { session, pass, sent } = instance();
    await session.begin({ ...pair(1), expires_in });
    pass(seconds - 1);
    expect(await session.accessToken()).toBe(accessToken(1));
    pass(2);
    expect(await session.accessToken()).toBe(accessToken(2));
    expect(sent).toEqual(["tokens R1"]);
  });
});

describe("a refresh", () => {
  test.each([
    [30, 29],
    [2, 1],
  ])("with a window of %d seconds begins at the latest after %d", async (graceSeconds, latest) => {
    const begun: number[] = [];
    const start = performance.now();
    let offset = 0;
    const monotonic = () => performance.now() - start + offset;
    const sleep = async (ms: number) => {
      offset += ms;
    };
    const { session } = instance({ graceSeconds, platform: { monotonic, sleep } }, () => {
      begun.push(monotonic() / 1000);
      return new Response(null, { status: 503 });
    });
    await session.begin(pair(1));
    const from = monotonic() / 1000;
    await expect(session.accessToken(accessToken(1))).rejects.toMatchObject({ status: 503 });
    expect(begun.length).toBeGreaterThan(1);
    expect((begun.at(-1) ?? 0) - from).toBeLessThanOrEqual(latest + 0.5);
    expect((begun.at(-1) ?? 0) - from).toBeGreaterThan(latest / 3);
  });

  test("reads the store again before it repeats with another proof", async () => {
    const store = memoryStore();
    const { session, sent } = instance({ store, key: "x" }, async (request) => {
      if (request !== "tokens R1") return undefined;
      await put(store, textOf(3).replace('"userId"', '"key":"x","userId"'));
      return refusal("use_dpop_nonce");
    });
    await session.begin(pair(1));
    expect(await session.accessToken(accessToken(1))).toBe(accessToken(3));
    expect(sent).toEqual(["tokens R1"]);
  });

  test("of an access token that is no JWT keeps its session", async () => {
    const opaque = Response.json({ ...pair(2), access_token: "opaque" });
    const { session } = instance({}, () => opaque);
    await session.begin(pair(1));
    expect(await session.accessToken(accessToken(1))).toBe("opaque");
    expect(await session.userId()).toBe("ada");
  });

  test("of which the pair finds no session revokes it", async () => {
    const store = memoryStore();
    const { session, sent, endings } = instance({ store }, async (request) => {
      if (request === "tokens R1") await put(store, undefined);
      return undefined;
    });
    await session.begin(pair(1));
    await expect(session.accessToken(accessToken(1))).rejects.toMatchObject({ reason: "signed_out" });
    expect(sent).toEqual(["tokens R1", "revoke R2"]);
    expect(endings).toEqual(["signed_out"]);
    expect(await store.read()).toBeUndefined();
  });
});

describe("signOut", () => {
  test("forgets at once, while auth and an earlier start's tokens wait", async () => {
    const store = memoryStore();
    await put(store, textOf(1, { toRevoke: ["A", "B"] }));
    const { session, sent } = instance({ store }, never);
    void session.signOut();
    await expect.poll(() => store.read()).toBe(JSON.stringify({ toRevoke: ["A", "B", "R1"] }));
    expect(await session.userId()).toBeUndefined();
    await expect.poll(() => sent).toContain("revoke R1");
    const later = instance({ store });
    await expect.poll(() => store.read()).toBeUndefined();
    expect(later.sent).toEqual(["revoke A", "revoke B", "revoke R1"]);
  });

  test("hands over the token that it has, if its age is known", async () => {
    const { session, store, sent } = instance();
    const seen: unknown[] = [];
    for (const refused of [undefined, accessToken(1)]) {
      await session.begin(pair(1));
      await session.accessToken(refused);
      await session.signOut(async (token) => seen.push(token, await store.read()));
    }
    const [first, second] = ["R1", "R2"].map((token) => JSON.stringify({ toRevoke: [token] }));
    expect(seen).toEqual([accessToken(1), first, accessToken(2), second]);
    expect(sent).toEqual(["revoke R1", "tokens R1", "revoke R2"]);
  });

  test.each(["has expired", "is of an earlier start"])("gets another token where it %s", async (which) => {
    const { session, pass, store } = instance();
    await session.begin(pair(1));
    pass(3600);
    const last = which === "has expired" ? { session } : instance({ store });
    if (last.session !== session) await last.session.accessToken();
    const texts: unknown[] = [];
    await last.session.signOut(async (token) => texts.push(token, await store.read()));
    expect(texts).toEqual([accessToken(2), JSON.stringify({ toRevoke: ["R1"] })]);
    expect(await store.read()).toBeUndefined();
  });

  test("waits five seconds for what it hands the token to, and not at all for what fails", async () => {
    const { session, store, slept, sent } = instance();
    await session.begin(pair(1));
    await session.signOut(never);
    expect(slept).toEqual([5000]);
    await session.begin(pair(2));
    await session.signOut(() => {
      throw new Error("no device");
    });
    expect(sent).toEqual(["revoke R1", "revoke R2"]);
    expect(await store.read()).toBeUndefined();
  });

  test("and begin are told to nobody who calls meanwhile as another's", async () => {
    const memory = memoryStore();
    const turns = async (count: number) => {
      for (let turn = 0; turn < count; turn++) await undefined;
    };
    const slow: SessionStore = {
      async read() {
        // A call reads between the write and its end, whether it came before or after it had begun.
        await turns(reads++ === 0 ? 25 : 0);
        return memory.read();
      },
      async replace(...texts) {
        const isDone = await memory.replace(...texts);
        await turns(50);
        return isDone;
      },
    };
    let reads = 1;
    const { session, endings } = instance({ store: slow });
    async function callsDuring(act: () => Promise<void>) {
      reads = 0;
      const before = session.accessToken();
      await turns(5);
      const acting = act();
      await turns(15);
      const calls = [before, session.accessToken()];
      await acting;
      return (await Promise.allSettled(calls)).map((call) => Object(call).value);
    }
    await session.begin(pair(1));
    const second = await callsDuring(() => session.begin(pair(2, "bob")));
    expect(second).toEqual(Array(2).fill(accessToken(2, "bob")));
    expect(await callsDuring(() => session.signOut())).toEqual([undefined, undefined]);
    expect(endings).toEqual([]);
  });

  test("keeps what auth does not take until it does, ten tokens at most", async () => {
    const store = memoryStore();
    const wrong = instance({ store }, () => refusal("invalid_client", 401));
    for (let number = 1; number <= 12; number++) {
      await wrong.session.begin(pair(number));
      await wrong.session.signOut();
    }
    const kept = Array.from({ length: 10 }, (_, index) => `R${index + 3}`);
    expect(await store.read()).toBe(JSON.stringify({ toRevoke: kept }));
    const unknown = instance({ store }, (request) =>
      refusal(request === "revoke R3" ? "invalid_client" : "invalid_token"),
    );
    await expect.poll(() => store.read()).toBe(JSON.stringify({ toRevoke: ["R3"] }));
    expect(unknown.sent).toHaveLength(10);
  });
});

describe("begin", () => {
  test("revokes the session in whose place it comes, and not its own", async () => {
    const { session, sent } = instance();
    await session.begin(pair(1));
    await session.begin(pair(1));
    await session.begin(pair(2, "bob"));
    expect(sent).toEqual(["revoke R1"]);
    expect(await session.userId()).toBe("bob");
  });

  test("revokes what the store does not take, and who was signed in stays so", async () => {
    const memory = memoryStore();
    let isFull = false;
    const replace: SessionStore["replace"] = async (...texts) => {
      if (isFull) throw new Error("disk full");
      return memory.replace(...texts);
    };
    const { session, sent } = instance({ store: { read: memory.read, replace } });
    await session.begin(pair(1));
    isFull = true;
    await expect(session.begin(pair(2, "bob"))).rejects.toThrow("disk full");
    expect(sent).toEqual(["revoke R2"]);
    expect(await session.accessToken()).toBe(accessToken(1));
  });
});

describe("a store", () => {
  test("in memory takes nothing over a text that it was not told", async () => {
    const store = memoryStore();
    expect(await store.replace(undefined, "newer")).toBe(true);
    expect(await store.replace("old", "older")).toBe(false);
    expect(await store.read()).toBe("newer");
  });

  test.each(["no JSON", "", "{}", '{"session":{"v":2}}', '{"toRevoke":[1]}', "null", "5"])(
    "with the text %j fails, ends nothing, and takes the next sign-in",
    async (text) => {
      const store = memoryStore();
      const { session, sent, endings } = instance({ store }, async (request) => {
        if (request === "tokens R1") await put(store, text);
        return undefined;
      });
      await session.begin(pair(1));
      const refused = { name: "GatepostError", message: expect.stringContaining("cannot read") };
      await expect(session.accessToken(accessToken(1))).rejects.toMatchObject(refused);
      for (const call of [session.userId, session.accessToken, session.signOut])
        await expect(call()).rejects.toMatchObject(refused);
      expect([await store.read(), sent, endings]).toEqual([text, ["tokens R1"], []]);
      await session.begin(pair(5));
      expect(await session.accessToken()).toBe(accessToken(5));
    },
  );

  test("that takes nothing is named", async () => {
    const { read } = memoryStore();
    const { session } = instance({ store: { read, replace: async () => false } });
    await expect(session.begin(pair(1))).rejects.toThrow("The store's `replace`");
  });

  test("tells an instance that has only named its user when he is signed out elsewhere", async () => {
    const one = instance();
    await one.session.begin(pair(1));
    const { session, endings } = instance({ store: one.store });
    expect(await session.userId()).toBe(await one.session.userId());
    await one.session.signOut();
    for (let call = 0; call < 2; call++)
      await expect(session.accessToken()).rejects.toMatchObject({ name: "SignedOutError" });
    expect([one.endings, endings]).toEqual([[], ["ended"]]);
  });

  test("with a session of another key keeps it, and nothing is sent", async () => {
    const mine = instance({ key: "mine" });
    await mine.session.begin(pair(1));
    const { session, sent, endings } = instance({ store: mine.store, key: "other" });
    for (let call = 0; call < 2; call++)
      await expect(session.accessToken()).rejects.toMatchObject({ reason: "key_lost" });
    expect(await session.userId()).toBeUndefined();
    await session.signOut();
    // Nobody was signed in here as far as the page knew.
    expect([sent, endings]).toEqual([[], []]);
    expect(await mine.session.accessToken()).toBe(accessToken(1));
  });
});
