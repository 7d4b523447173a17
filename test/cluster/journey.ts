/** What a user's app, a back end and an operator ask of both services, each response held against what it must be. */
import { randomUUID } from "node:crypto";
import { backoffice, internal, mobileApp, newPhone } from "../support/auth-api.ts";
import { type Client, type HttpCall, protocols } from "./client.ts";

const auth = "/api/auth";
const push = "/api/push-orchestration/v1/pushprovider";

/** One send in so many journeys, as each goes to all users of the moment. */
const journeysPerSend = 50;

export class Journeys {
  /** Requests by what they ask for. */
  readonly made = new Map<string, number>();
  /** What went wrong, and how often. A journey ends there. */
  readonly failures = new Map<string, number>();
  readonly #client: Client;
  #begun = 0;

  constructor(client: Client) {
    this.#client = client;
  }

  get requests(): number {
    return this.made.values().reduce((sum, count) => sum + count, 0);
  }

  get failed(): number {
    return this.failures.values().reduce((sum, count) => sum + count, 0);
  }

  /** Walks through one user's life. @param operator an access token of the back office */
  async walk(operator: string): Promise<void> {
    this.#begun += 1;
    try {
      await this.#walk(operator, this.#begun % journeysPerSend === 1);
    } catch (error) {
      const what = error instanceof Error ? error.message : String(error);
      this.failures.set(what, (this.failures.get(what) ?? 0) + 1);
    }
  }

  /** @returns an access token of the back office, of somebody new */
  async newOperator(): Promise<string> {
    const [username, password] = [`operator-${randomUUID()}`, randomUUID()];
    await this.#identity("create", "POST", "", { id: username, phone: newPhone() });
    await this.#identity("set a password", "PUT", `/${username}/password`, { password });
    const pair = await this.#grant(backoffice, { grant_type: "password", username, password });
    return String(pair["access_token"]);
  }

  async #walk(operator: string, sends: boolean): Promise<void> {
    const id = randomUUID();
    const phone = newPhone();
    await this.#identity("create", "POST", "", { id, phone });
    await this.#identity("read", "GET", `/${id}`);
    await this.#identity("find", "GET", `/find-by-phone?phone=${encodeURIComponent(phone)}`);
    await this.#identity("change", "PUT", `/${id}`, { metadata: { plan: "gold" } });
    await this.#http("key set", 200, { method: "GET", path: `${auth}/v1/jwks` });
    const first = await this.#grant(mobileApp, { grant_type: "auth", auth_id: id });
    const refresh_token = String(first["refresh_token"]);
    const pair = await this.#grant(mobileApp, { grant_type: "refresh_token", refresh_token });
    const token = String(pair["access_token"]);
    await this.#expectActive(token, true);

    const as = `Bearer ${token}`;
    const device = { token: `device-${id}`, expiration: new Date(Date.now() + 3_600_000).toISOString() };
    await this.#http("save a device", 204, { method: "POST", path: `${push}/token`, as, json: device });
    if (sends) {
      const json = { title: "Hello", message: "How are you?", utcOffsets: [0] };
      const call = { method: "POST", path: `${push}/push`, as: `Bearer ${operator}`, json } as const;
      await this.#http("send", 204, call);
    }
    await this.#http("history", 200, { method: "GET", path: `${push}/notifications-history`, as });
    await this.#http("summary", 200, { method: "GET", path: `${push}/notifications-summary`, as });
    const all = { method: "DELETE", path: `${push}/token`, as, json: { all: true } } as const;
    await this.#http("remove devices", 204, all);

    const form = { token: String(pair["refresh_token"]) };
    await this.#http("revoke", 200, {
      method: "POST",
      path: `${auth}/oauth2/v1/revoke`,
      as: mobileApp,
      form,
    });
    await this.#expectActive(token, false);
    await this.#identity("delete", "DELETE", `/${id}`);
  }

  #count(kind: string): void {
    this.made.set(kind, (this.made.get(kind) ?? 0) + 1);
  }

  async #http(kind: string, status: number, call: HttpCall): Promise<Record<string, unknown>> {
    this.#count(kind);
    const reply = await this.#client.http(call);
    if (reply.status !== status) throw new Error(`${kind}: ${reply.status} ${reply.body.slice(0, 300)}`);
    return reply.body === "" ? {} : JSON.parse(reply.body);
  }

  #identity(what: string, method: HttpCall["method"], path: string, json?: object) {
    const status = method === "PUT" || method === "DELETE" ? 204 : 200;
    const call = { method, path: `${auth}/v1/identities${path}`, as: internal, ...(json && { json }) };
    return this.#http(`identity: ${what}`, status, call);
  }

  #grant(as: string, form: Readonly<Record<string, string>>) {
    const call = { method: "POST", path: `${auth}/oauth2/v1/tokens`, as, form } as const;
    return this.#http(`grant: ${form["grant_type"]}`, 200, call);
  }

  /** Over all protocols. */
  async #expectActive(token: string, wanted: boolean): Promise<void> {
    const path = `${auth}/oauth2/v1/introspect`;
    const call = { method: "POST", path, as: internal, form: { token } } as const;
    const { active } = await this.#http("introspection: HTTP", 200, call);
    if (active !== wanted) throw new Error(`introspection: HTTP says active: ${active}`);
    for (const protocol of protocols) {
      const kind = `introspection: ${protocol}`;
      this.#count(kind);
      const isActive = await this.#client.introspect(protocol, internal, token).catch((error: unknown) => {
        throw new Error(`${kind}: ${error}`);
      });
      if (isActive !== wanted) throw new Error(`${kind} says active: ${isActive}`);
    }
  }
}
