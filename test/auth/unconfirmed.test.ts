/** A retry finds done what no standby has confirmed, and is not answered before one has. */
import { beforeAll, describe, expect, test } from "vitest";
import { authMigrations } from "../../src/auth/service.ts";
import { type Answer, type AuthApi, authApi, internal, mobileApp } from "../support/auth-api.ts";
import { startAuthServer } from "../support/auth-server.ts";
import { readContract } from "../support/contract-check.ts";
import { findPostgresql } from "../support/postgresql/binaries.ts";
import {
  type ReplicatedDatabase,
  startReplicatedDatabase,
} from "../support/postgresql/replicated-database.ts";
import { databaseEnvironment } from "../support/servers.ts";
import { suiteCleanup } from "../support/suite-cleanup.ts";
import { waitFor } from "../support/wait-for.ts";

const binaries = findPostgresql(["initdb", "postgres", "pg_basebackup"]);

describe.runIf(binaries)(
  "a primary whose synchronous standby is gone, and that is read alone: PostgreSQL",
  () => {
    let replicated: ReplicatedDatabase;
    let api: AuthApi;
    const cleanup = suiteCleanup();
    beforeAll(async () => {
      replicated = await startReplicatedDatabase(binaries ?? "", [authMigrations], cleanup);
      const server = await startAuthServer("PostgreSQL", { env: databaseEnvironment(replicated.database) });
      cleanup.defer(() => server.stop());
      api = authApi(server.base, readContract("auth"));
    });

    const newPair = async () => api.newPair((await api.newIdentity()).id, mobileApp);
    const revoke = (token: string) => api.call("revokeToken", { as: mobileApp, form: { token } });

    /** Requests with the status that each gets once what it asks for has been done by an earlier try. */
    async function requests(): Promise<Record<string, { send(): Promise<Answer>; done: number }>> {
      const [{ access_token }, revoked, retried, replaced] = await Promise.all([
        newPair(),
        newPair(),
        newPair(),
        newPair(),
      ]);
      const deleted = await api.newIdentity();
      const [ended, emptied] = [await api.newIdentity(), await api.newIdentity()];
      const { jti = "" } = await api.introspect((await api.newPair(ended.id, mobileApp)).access_token);
      const path = { id: ended.id, authorizationId: jti.split(".")[0] ?? "" };
      const created = { id: `new-${deleted.id}`, phone: "+12025550147" };
      const { text } = await api.refresh(replaced.refresh_token);
      expect((await api.refresh(JSON.parse(text).refresh_token)).status).toBe(200);
      return {
        "revocation of an access token": { send: () => revoke(access_token), done: 200 },
        "revocation of a refresh token": { send: () => revoke(revoked.refresh_token), done: 200 },
        deletion: {
          send: () => api.call("deleteIdentity", { as: internal, path: { id: deleted.id } }),
          done: 404,
        },
        "end of one": {
          send: () => api.call("endAuthorization", { as: internal, path }),
          done: 204,
        },
        "end of all": {
          send: () => api.call("endAllAuthorizations", { as: internal, path: { id: emptied.id } }),
          done: 204,
        },
        creation: { send: () => api.call("createIdentity", { as: internal, json: created }), done: 409 },
        refresh: { send: () => api.refresh(retried.refresh_token), done: 200 },
        reuse: { send: () => api.refresh(replaced.refresh_token), done: 400 },
      };
    }

    test("a retry is refused as the first try was, until the standby is back", async () => {
      const all = Object.entries(await requests());
      async function statuses(): Promise<Record<string, number>> {
        return Object.fromEntries(
          await Promise.all(all.map(async ([name, { send }]) => [name, (await send()).status] as const)),
        );
      }
      const refused = Object.fromEntries(all.map(([name]) => [name, 503]));
      await replicated.standby.halt("fast");
      expect(await statuses()).toEqual(refused);
      await replicated.waitsHaveEnded();
      expect(await statuses()).toEqual(refused);
      await replicated.standby.resume();
      await waitFor(async () =>
        expect(await statuses()).toEqual(Object.fromEntries(all.map(([name, { done }]) => [name, done]))),
      );
    }, 60_000);
  },
);
