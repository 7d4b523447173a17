import { setTimeout as delay } from "node:timers/promises";
import postgres from "postgres";
import { test } from "vitest";
import { authApi, internal } from "/work/main/test/support/auth-api.ts";
import { spawnAuthServer } from "/work/main/test/support/auth-server.ts";
import { createAuthStore } from "/work/main/test/support/auth-store.ts";
import { postgresUrl } from "/work/main/test/support/backends.ts";

test("x", async () => {
  const store = await createAuthStore("PostgreSQL");
  const admin = postgres(postgresUrl(), { max: 1, onnotice: () => undefined });
  for (let run = 0; run < 3; run++) {
    const s = await spawnAuthServer("PostgreSQL", { env: store.env });
    const api = authApi(s.base);
    const seen: Record<string, number> = {};
    let stop = false;
    const t0 = Date.now();
    let died = 0;
    s.child.once("exit", (code, sig) => {
      died = Date.now() - t0;
      console.log("EXIT", code, sig, died, "ms");
    });
    const load = Array.from({ length: 8 }, async () => {
      while (!stop && !died) {
        const r = await api
          .call("createIdentity", {
            as: internal,
            json: {
              id: crypto.randomUUID(),
              phone: "+1202555" + String(Math.floor(Math.random() * 1e4)).padStart(4, "0"),
            },
          })
          .then(
            (a) => a.status,
            () => 0,
          );
        seen[r] = (seen[r] ?? 0) + 1;
      }
    });
    while (Date.now() - t0 < 8000 && !died) {
      await delay(50);
      await admin`select pg_terminate_backend(pid) from pg_stat_activity where datname = ${store.env["DB_NAME"] ?? ""} and application_name = 'gatepost'`;
    }
    stop = true;
    await Promise.race([Promise.all(load), delay(12000)]);
    console.log(
      "run",
      run,
      "statuses",
      seen,
      "alive",
      !died,
      s
        .logs()
        .split("\n")
        .filter((l) => l.includes("FATAL") || l.includes("defect"))
        .slice(0, 2),
    );
    await s.stop();
  }
  await admin.end();
  await store.drop();
}, 120000);
