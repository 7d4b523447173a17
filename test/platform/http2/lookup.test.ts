/** Hosts are looked up by DNS, and nothing else waits for a name server that stays silent. */
import { generateKeyPairSync, sign } from "node:crypto";
import { createSocket } from "node:dgram";
import { Resolver } from "node:dns/promises";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { beforeAll, expect, onTestFinished, test } from "vitest";
import { createConfiguredLookup, createPublicLookup } from "../../../src/platform/http2/lookup.ts";
import { connectTcp } from "../../../src/platform/http2/socket.ts";
import { stopwatch } from "../../support/stopwatch.ts";
import { suiteCleanup } from "../../support/suite-cleanup.ts";
import { waitFor } from "../../support/wait-for.ts";

const cleanup = suiteCleanup();
/** Of records (RFC 1035 section 3.2.2, RFC 3596 section 2.1). */
const types = { A: 1, AAAA: 28 };
const records: Readonly<Record<string, Partial<Record<"A" | "AAAA", Buffer>>>> = {
  ...Object.fromEntries(
    ["oauth2", "fcm", "apns", "webpush"].map((host) => [
      `dropping.${host}.example.com`,
      { A: Buffer.from([127, 0, 0, 1]) },
    ]),
  ),
  "127.1": { A: Buffer.from([127, 0, 0, 9]) },
  localhost: { A: Buffer.from([127, 0, 0, 9]) },
  "push.example.com": { A: Buffer.from([127, 0, 0, 1]) },
  "six.example.com": { AAAA: Buffer.from("00000000000000000000000000000001", "hex") },
  "empty.example.com": {},
};
let lookup: ReturnType<typeof createPublicLookup>;
let nameServers: string[];

beforeAll(async () => {
  const server = createSocket("udp4");
  server.on("message", (query, from) => {
    const { name, type, end } = questionOf(query);
    if (name.startsWith("silent") || (name.startsWith("dropping") && type === types.AAAA)) return;
    const known = records[name];
    const data = Object.entries(types).flatMap(([key, value]) =>
      value === type ? (known?.[key as keyof typeof types] ?? []) : [],
    );
    const header = Buffer.from(query.subarray(0, 12));
    // A response, recursion available; NXDOMAIN for names that are not known (RFC 1035 section 4.1.1).
    header.writeUInt16BE(known ? 0x8180 : 0x8183, 2);
    header.writeUInt16BE(data.length, 6);
    header.writeUInt32BE(0, 8);
    const answers = data.map((address) => {
      const fields = Buffer.alloc(12);
      // The name is that of the question, at byte 12.
      fields.writeUInt16BE(0xc00c, 0);
      fields.writeUInt16BE(type, 2);
      fields.writeUInt16BE(1, 4);
      fields.writeUInt32BE(60, 6);
      fields.writeUInt16BE(address.length, 10);
      return Buffer.concat([fields, address]);
    });
    server.send(Buffer.concat([header, query.subarray(12, end), ...answers]), from.port, from.address);
  });
  server.bind(0, "127.0.0.1");
  await once(server, "listening");
  cleanup.defer(() => void server.close());
  nameServers = [`127.0.0.1:${server.address().port}`];
  lookup = lookupWithin(10_000);
});

function questionOf(query: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query[at] ?? 0; length > 0; length = query[at] ?? 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
}

/** @param timeout milliseconds that the name server has for its answer */
function lookupWithin(timeout: number): typeof lookup {
  const resolver = new Resolver({ timeout, tries: 1 });
  resolver.setServers(nameServers);
  return createPublicLookup(resolver);
}

const find = (hostname: string, family: number, within = lookup) =>
  new Promise((resolve, reject) => {
    within(hostname, { all: true, family }, (error, addresses) =>
      error ? reject(error) : resolve(addresses),
    );
  });

test("a host has the addresses of each family", async () => {
  expect(await find("push.example.com", 4)).toEqual([{ address: "127.0.0.1", family: 4 }]);
  expect(await find("six.example.com", 6)).toEqual([{ address: "::1", family: 6 }]);
});

test.each([
  ["none.example.com", 4, "ENOTFOUND"],
  ["empty.example.com", 4, "ENOTFOUND"],
  ["push.example.com", 6, "ENOTFOUND"],
])("without an address, %s of family %i fails with %s", async (hostname, family, code) => {
  await expect(find(hostname, family)).rejects.toMatchObject({ code });
});

test("a name server that stays silent fails with ETIMEOUT", async () => {
  await expect(find("silent.example.com", 4, lookupWithin(300))).rejects.toMatchObject({ code: "ETIMEOUT" });
});

test.each([
  ["clients name", createPublicLookup, ["push.example.com"]],
  ["the settings name", createConfiguredLookup, []],
])(
  "connections to four hosts that %s do not wait for the look-ups of a family that never end",
  async (_, create, more) => {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    cleanup.defer(() => void server.close());
    const address = server.address();
    const port = typeof address === "object" && address ? address.port : 0;
    const patient = new Resolver({ timeout: 60_000, tries: 1 });
    patient.setServers(nameServers);
    const { signal } = new AbortController();
    const elapsed = stopwatch();
    const hosts = [...Object.keys(records).filter((name) => name.startsWith("dropping")), ...more];
    const connecting = hosts.map((host) => connectTcp({ host, port, lookup: create(patient), signal }));
    const sockets = await Promise.all(connecting);
    expect(elapsed()).toBeLessThan(1_000);
    expect(sockets).toHaveLength(4 + more.length);
    for (const socket of sockets) socket.destroy();
    patient.cancel();
  },
);

test.each([
  ["is in the hosts file is the system's", "127.1", "10.0.0.1 127.1", "127.0.0.1"],
  ["is not in the hosts file is that of DNS", "127.1", "10.0.0.1 other", "127.0.0.9"],
  ["DNS does not know is the system's", "127.2", "", "127.0.0.2"],
  ["has no dot is the system's", "localhost", "", "127.0.0.1"],
])("the address of a configured name that %s", async (_, name, text, address) => {
  const folder = mkdtempSync(join(tmpdir(), "gatepost-hosts-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const hostsFile = join(folder, "hosts");
  writeFileSync(hostsFile, `# Hosts\n${text}\n`);
  const resolver = new Resolver({ timeout: 10_000, tries: 1 });
  resolver.setServers(nameServers);
  expect(await find(name, 4, createConfiguredLookup(resolver, hostsFile))).toEqual([{ address, family: 4 }]);
});

test("a signature waits for none of 400 hosts whose name server is silent", async () => {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const patient = new Resolver({ timeout: 60_000, tries: 1 });
  patient.setServers(nameServers);
  const lookUp = createPublicLookup(patient);
  let ended = 0;
  for (let n = 0; n < 400; n += 1) lookUp(`silent-${n}.example.com`, {}, () => (ended += 1));
  const signature = await promisify(sign)("sha256", Buffer.from("x"), privateKey);
  expect({ ended, bytes: signature.length }).toEqual({ ended: 0, bytes: 256 });
  patient.cancel();
  await waitFor(() => expect(ended).toBe(400));
});
