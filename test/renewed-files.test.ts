/** What two workers under load read again: a certificate and a password that are replaced on disk, and what is not one. */
import { X509Certificate } from "node:crypto";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { request } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, TLSSocket } from "node:tls";
import postgres from "postgres";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { authMigrations } from "../src/auth/service.ts";
import { openDatabase } from "../src/platform/database/open.ts";
import { internal, mobileApp, newPhone } from "./support/auth-api.ts";
import { createTestDatabase, postgresSettings } from "./support/backends.ts";
import {
  localhostCertificate as first,
  nextLocalhostCertificate as second,
  weakLocalhostCertificate as weak,
} from "./support/localhost-certificate.ts";
import { findPostgresql } from "./support/postgresql/binaries.ts";
import { startCluster } from "./support/postgresql/cluster.ts";
import { databaseEnvironment, type ServerProcess, spawnServer } from "./support/servers.ts";
import { suiteCleanup } from "./support/suite-cleanup.ts";
import { waitFor } from "./support/wait-for.ts";

const binaries = findPostgresql();
const fingerprintOf = ({ cert }: { cert: string }) => new X509Certificate(cert).fingerprint256;

describe.runIf(binaries !== undefined)("under load, two workers", () => {
  const folder = mkdtempSync(join(tmpdir(), "gatepost-test-"));
  let admin: postgres.Sql;
  let user: string;
  let server: ServerProcess;
  const cleanup = suiteCleanup();
  beforeAll(async () => {
    cleanup.defer(() => rmSync(folder, { recursive: true, force: true }));
    const cluster = await startCluster(binaries ?? "", ["fsync=off"]);
    cleanup.defer(() => cluster.stop());
    const database = await createTestDatabase({ admin: new URL(cluster.url) });
    user = database.user;
    admin = postgres(cluster.url, { max: 1, onnotice: () => undefined });
    cleanup.defer(() => admin.end());
    const opened = await openDatabase(postgresSettings(database), authMigrations);
    await opened.migrate();
    await opened.close();
    const file = String((await admin`show hba_file`)[0]?.["hba_file"]);
    writeFileSync(file, `host all ${user} 127.0.0.1/32 scram-sha-256\n${readFileSync(file, "utf8")}`);
    await admin`select pg_reload_conf()`;

    mount("1", first);
    symlinkSync("..data/cert", join(folder, "cert"));
    symlinkSync("..data/key", join(folder, "key"));
    writeFileSync(join(folder, "password"), `${database.password}\n`);
    const files = {
      DB_PASSWORD: "",
      DB_PASSWORD_FILE: join(folder, "password"),
      TLS_CERT_FILE: join(folder, "cert"),
      TLS_KEY_FILE: join(folder, "key"),
    };
    const env = { ...databaseEnvironment(database), ...files, SERVICES: "auth", WORKERS: "2" };
    server = await spawnServer("PostgreSQL", { env });
    cleanup.defer(() => server.stop());
    await waitFor(() => expect(lines("A worker listens")).toHaveLength(2));
    await ask("v1/identities", internal, JSON.stringify({ id: "somebody", phone: newPhone() }));
  });

  /** As Kubernetes has it: a folder that a link names, so that all files in it change at once. */
  function mount(version: string, { cert, key }: { cert: string; key: string }): void {
    mkdirSync(join(folder, version));
    writeFileSync(join(folder, version, "cert"), cert);
    writeFileSync(join(folder, version, "key"), key);
    symlinkSync(version, join(folder, "..next"));
    renameSync(join(folder, "..next"), join(folder, "..data"));
  }

  /** A request on a connection of its own. @returns the certificate of the server */
  function ask(path: string, authorization: string, body: string): Promise<string> {
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const type = body.startsWith("{") ? "json" : "x-www-form-urlencoded";
    const sent = request(`https://localhost:${new URL(server.origin).port}/api/auth/${path}`, {
      method: "POST",
      headers: { authorization, "content-type": `application/${type}` },
      agent: false,
      ca: [first.cert, second.cert],
    });
    sent.on("response", (response) => {
      const { socket, statusCode } = response;
      const shown = socket instanceof TLSSocket ? socket.getPeerX509Certificate()?.fingerprint256 : undefined;
      response.resume().on("end", () => {
        if (statusCode === 200 && shown) resolve(shown);
        else reject(new Error(`${path}: ${statusCode}`));
      });
    });
    sent.on("error", reject).end(body);
    return promise;
  }

  const introspect = () => ask("oauth2/v1/introspect", internal, "token=x");
  const sign = () => ask("oauth2/v1/tokens", mobileApp, "grant_type=auth&auth_id=somebody");

  const failures: string[] = [];
  let requests = 0;
  const shown = new Set<string>();
  let isOver: boolean;
  let load: Promise<void>[];

  /** One more client. */
  async function client(): Promise<void> {
    while (!isOver) {
      await counted(introspect);
      await counted(sign);
    }
  }

  async function counted(once: () => Promise<string>): Promise<void> {
    requests += 1;
    await once().then(
      (certificate) => shown.add(certificate),
      (error) => failures.push(String(error)),
    );
  }

  beforeEach(() => {
    isOver = false;
    requests = 0;
    failures.length = 0;
    load = [client(), client()];
  });
  afterEach(async () => {
    isOver = true;
    await Promise.all(load);
    process.stdout.write(
      `${expect.getState().currentTestName}: ${requests} requests, ${failures.length} failed\n`,
    );
    expect([...new Set(failures)]).toEqual([]);
  });

  const lines = (pattern: string) => server.logs().match(new RegExp(pattern, "g")) ?? [];

  test("use a new certificate on both ports, and keep the old one while OpenSSL refuses the files", async () => {
    mount("2", { cert: second.cert, key: first.key });
    const other = "kept: TLS_KEY_FILE does not belong to the certificate in TLS_CERT";
    await waitFor(() => expect(lines(other)).toHaveLength(2));
    mount("3", weak);
    const refused = "kept: TLS_CERT_FILE is refused by OpenSSL .ERR_SSL_EE_KEY_TOO_SMALL.";
    await waitFor(() => expect(lines(refused)).toHaveLength(2));
    expect([...shown]).toEqual([fingerprintOf(first)]);

    mount("4", second);
    await waitFor(() => expect(lines("The certificate was replaced")).toHaveLength(2));
    shown.clear();
    const before = requests;
    await waitFor(() => expect(requests).toBeGreaterThan(before + 20));
    expect(shown).toContain(fingerprintOf(second));
    const [host = "", port] = server.grpc.split(":");
    for (let time = 0; time < 4; time += 1) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const socket = connect({ host, port: Number(port), ca: second.cert, ALPNProtocols: ["h2"] }, resolve);
      socket.on("error", reject);
      await promise;
      expect(socket.getPeerX509Certificate()?.fingerprint256).toBe(fingerprintOf(second));
      expect(socket.alpnProtocol).toBe("h2");
      socket.destroy();
    }
    expect(lines("The certificate")).toHaveLength(6);
  });

  test("make new connections with a new password, which is in the file before PostgreSQL has it", async () => {
    writeFileSync(join(folder, "password"), "another password\n");
    // More clients need more connections, for which the old password is still taken.
    load.push(client(), client());
    const before = requests;
    await waitFor(() => expect(requests).toBeGreaterThan(before + 40));
    await admin.unsafe(`alter role ${user} password 'another password'`);
    const [altered] = await admin<{ at: Date }[]>`select clock_timestamp() as at`;
    await waitFor(async () => {
      await Promise.all(Array.from({ length: 60 }, () => counted(sign)));
      expect(lines("password was refused, and read again from its file")).toHaveLength(2);
    });
    await waitFor(async () => {
      const since = await admin`
        select from pg_stat_activity where usename = ${user} and backend_start > ${altered?.at ?? new Date()}`;
      expect(since.length).toBeGreaterThanOrEqual(2);
    });
  });
});
