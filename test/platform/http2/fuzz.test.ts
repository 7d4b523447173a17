/**
 * Our client against a server that sends broken frames, made at random from a seed. Whatever comes: nothing is thrown,
 * every request ends, and none has a status that the server did not send to it.
 *
 *   TEST_FUZZ_SEED=7 TEST_FUZZ_ROUNDS=10000   one seed, or more rounds
 */
import { setTimeout } from "node:timers/promises";
import { beforeAll, expect, test } from "vitest";
import { FrameConnection } from "../../../src/platform/http2/frame-connection.ts";
import { Http2Pool } from "../../../src/platform/http2/pool.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { follow, post, shared } from "./client-fixture.ts";
import { frame, number, ok, type Peer, type RawServer, settings, startRawServer } from "./raw-server.ts";

const firstSeed = Number(process.env["TEST_FUZZ_SEED"] ?? 1);
const rounds = Number(process.env["TEST_FUZZ_ROUNDS"] ?? 400);
const requestsOfRound = 4;
/** Milliseconds after which a round hangs. */
const roundMs = 20_000;

type Random = (below: number) => number;

/** Numbers by Marsaglia's xorshift: the same for the same seed. */
function randomFrom(seed: number): Random {
  let state = (seed * 2_654_435_769) >>> 0 || 1;
  return (below) => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state % below;
  };
}

function bytes(random: Random, most: number): Buffer {
  return Buffer.from(Array.from({ length: random(most + 1) }, () => random(256)));
}

/** A frame, most often nearly right. */
function anyFrame(random: Random): Buffer {
  const streamId = [0, 1, 3, 5, 7, 1, 3, 2, 9, 0x7fff_ffff][random(10)] ?? 0;
  const kinds = [
    () => frame(random(12), random(256), streamId, bytes(random, 40)),
    () => frame(0x0, random(16), streamId, bytes(random, 300)),
    () => frame(0x1, random(64), streamId, Buffer.concat([Buffer.of(0x88), bytes(random, 6)])),
    () => frame(0x1, 0x4, streamId, bytes(random, 20)),
    () => frame(0x9, random(8), streamId, bytes(random, 20)),
    () => frame(0x3, 0, streamId, number(random(16))),
    () => frame(0x8, 0, streamId, number(random(2) === 0 ? random(70_000) : 0x7fff_ffff)),
    () => settings({ [random(8)]: [0, 1, 100, 65_535, 0x7fff_ffff, 0xffff_ffff][random(6)] ?? 0 }),
    () => frame(0x6, random(2), 0, Buffer.alloc(8)),
    () => frame(0x7, 0, 0, Buffer.concat([number(random(10)), number(random(14)), bytes(random, 9)])),
    () => bytes(random, 30),
  ];
  return kinds[random(kinds.length)]?.() ?? Buffer.alloc(0);
}

/** The bytes of one turn, perhaps with a few of them changed. */
function anyBytes(random: Random): Buffer {
  const all = Buffer.concat(Array.from({ length: 1 + random(6) }, () => anyFrame(random)));
  for (let change = random(3); change > 0 && all.length > 0 && random(3) === 0; change -= 1) {
    all[random(all.length)] = random(256);
  }
  return all;
}

let server: RawServer;
const cleanup = suiteCleanup();
beforeAll(async () => {
  server = await startRawServer();
  cleanup.defer(() => server.close());
});

async function play(seed: number): Promise<void> {
  const random = randomFrom(seed);
  const { connection, opened, closed } = follow((...args) => new FrameConnection(...args), server.origin);
  const peer = await server.accept();
  if (random(10) === 0) peer.send(anyBytes(random));
  peer.send(settings());
  // What came first may look like the beginning of a frame that never ends: then it is for the deadline of connecting.
  await Promise.race([opened, closed, setTimeout(500)]);
  const results = Array.from({ length: connection.isOpen ? requestsOfRound : 0 }, () =>
    post(connection, { own: ["x-seed", String(seed)] }, "b".repeat(random(3) * 40_000)),
  ).map(({ result }) => result);
  for (let turn = random(6); turn >= 0; turn -= 1) {
    peer.send(anyBytes(random));
    await new Promise(setImmediate);
  }
  peer.socket.end();
  await closed;
  for (const { status, end } of await Promise.all(results)) {
    if (status !== undefined) expect(status).toBeGreaterThanOrEqual(200);
    // What is repeated has had no response.
    if (end.isUnprocessed) expect(status).toBeUndefined();
  }
}

test("whatever a server sends, nothing is thrown, and every request ends with the connection", async () => {
  for (let seed = firstSeed; seed < firstSeed + rounds; seed += 1) {
    const timeLimit = setTimeout(roundMs, undefined, { ref: false }).then(() => {
      throw new Error("The round does not end.");
    });
    await Promise.race([play(seed), timeLimit]).catch((error: unknown) => {
      throw new Error(`TEST_FUZZ_SEED=${seed} TEST_FUZZ_ROUNDS=1`, { cause: error });
    });
  }
});

/** A server that answers some requests, and to the others sends only what is no response. */
async function answerSome(peer: Peer, random: Random, answered: Set<number>): Promise<void> {
  const noise = [
    () => frame(0x0, random(2), 1 + 2 * random(40), bytes(random, 20)),
    () => frame(0x1, 0x4, 1 + 2 * random(40), bytes(random, 4)),
    () => frame(0x3, 0, 1 + 2 * random(40), number(random(7))),
    () => frame(0x8, 0, 1 + 2 * random(40), number(random(100))),
    () => frame(0xfa, random(256), random(100), bytes(random, 20)),
    () => frame(0x6, 0, 0, Buffer.alloc(8)),
  ];
  peer.send(settings());
  for (;;) {
    const { streamId } = await peer.next(0x1);
    if (random(2) === 0) {
      answered.add(streamId);
      peer.send(ok(streamId));
    } else peer.send(noise[random(noise.length)]?.() ?? Buffer.alloc(0));
  }
}

test("no request outlives its time, and none succeeds whose response did not come", async () => {
  const random = randomFrom(firstSeed);
  const own = await startRawServer();
  const connect = (...args: ConstructorParameters<typeof FrameConnection>) => new FrameConnection(...args);
  const pool = new Http2Pool({
    connect,
    origin: own.origin,
    maxSessions: 1,
    maxStreams: 100,
    timeoutMs: 400,
  });
  let accepted = 0;
  const serve = async (): Promise<void> => {
    for (;;) {
      const peer = await own.accept();
      const answered = new Set<number>();
      void answerSome(peer, random, answered).catch(() => {
        accepted += answered.size;
      });
    }
  };
  void serve();
  let succeeded = 0;
  for (let round = 0; round < 20; round += 1) {
    const results = Array.from({ length: 10 }, () => pool.request({ path: "/", shared }, "body"));
    for (const result of await Promise.all(results)) succeeded += result.responded ? 1 : 0;
  }
  await pool.close();
  await own.close();
  expect(succeeded).toBeGreaterThan(0);
  await expect.poll(() => accepted).toBeGreaterThanOrEqual(succeeded);
});
