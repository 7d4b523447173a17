/** Sessions of the client with a real server, over a proxy that loses and changes responses, and by a clock that is set. */
import type { Signer } from "../../../packages/client/src/dpop.ts";
import type { Platform } from "../../../packages/client/src/platform.ts";
import { createSession, type Session } from "../../../packages/client/src/session.ts";
import { memoryStore, readStored, type SessionStore } from "../../../packages/client/src/store.ts";
import { authApi } from "../../support/auth-api.ts";
import { type Passing, startProxy } from "../../support/changing-proxy.ts";
import type { PushServer } from "../../support/push-server.ts";

export interface Instance {
  readonly session: Session;
  readonly platform: Platform;
  /** Why the session has ended, as it was told. */
  readonly endings: string[];
  /** The time since the start, and the device's clock, go on. */
  pass(seconds: number): void;
  /** The device's clock alone is set. */
  setClock(seconds: number): void;
}

interface InstanceOptions {
  readonly store: SessionStore;
  readonly signer?: Signer;
  readonly clientId?: string;
  readonly platform?: Partial<Platform>;
}

export interface SessionLab {
  readonly proxy: Awaited<ReturnType<typeof startProxy>>;
  /** The statuses with which refreshes have left the server. */
  readonly refreshes: number[];
  /** What becomes of responses of these paths on their way; what throws loses them. */
  onWay(path: string, change: (passing: Passing) => void): void;
  instance(options: InstanceOptions): Instance;
  /** A user who is signed in without a key, and the store of it. */
  signedIn(): Promise<{ readonly store: SessionStore; readonly first: Instance }>;
}

export async function startSessionLab(server: PushServer): Promise<SessionLab> {
  const refreshes: number[] = [];
  let lost: { readonly path: string; readonly change: (passing: Passing) => void } | undefined;
  const proxy = await startProxy(server.origin, (passing) => {
    if (passing.path.endsWith("/oauth2/v1/tokens")) refreshes.push(passing.status);
    if (lost && passing.path.endsWith(lost.path)) lost.change(passing);
  });
  const api = authApi(server.authBase);

  const lab: SessionLab = {
    proxy,
    refreshes,
    onWay(path, change) {
      lost = { path, change };
    },
    instance({ store, signer, clientId = "backend", platform: own }) {
      let [elapsed, clock] = [0, 0];
      const pass = (seconds: number) => {
        elapsed += seconds * 1000;
      };
      const platform: Platform = {
        fetch: (...request) => fetch(...request),
        now: () => Date.now() + clock,
        monotonic: () => elapsed,
        sleep: async (ms) => pass(ms / 1000),
        random: (bytes) => crypto.getRandomValues(new Uint8Array(bytes)),
        sha256: async (data) => new Uint8Array(await crypto.subtle.digest("SHA-256", data)),
        ...own,
      };
      const endings: string[] = [];
      const session = createSession({
        authUrl: `${proxy.origin}/api/auth`,
        issuer: server.settings.auth?.issuer,
        client: signer ? { clientId } : { clientId, clientSecret: `${clientId}-dev-secret` },
        ...{ store, signer, platform },
        onSignedOut: (reason) => void endings.push(reason),
      });
      const setClock = (seconds: number) => {
        clock = seconds * 1000;
      };
      return { session, platform, endings, pass, setClock };
    },
    async signedIn() {
      const store = memoryStore();
      const first = lab.instance({ store });
      const { id } = await api.newIdentity();
      await first.session.begin(await api.newPair(id));
      refreshes.length = 0;
      return { store, first };
    },
  };
  return lab;
}

export async function refreshTokenIn(store: SessionStore): Promise<string | undefined> {
  return (await readStored(store)).stored.session?.refreshToken;
}

/** Loses what has come, as where a connection breaks. */
export function lose(): never {
  throw new Error("lost");
}
