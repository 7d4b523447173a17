/** Fakes of what takes text messages: a webhook that verifies by Standard Webhooks, and Twilio's Messages resource. */
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { listening } from "../../src/platform/http/server.ts";

export interface TakenMessage {
  readonly phone: string;
  readonly text: string;
}

/** How a fake behaves: as it should, by refusing every message, or by saying nothing until it behaves otherwise. */
type Behaviour = "takes" | "refuses" | "redirects" | "hangs";

interface Received extends IncomingMessage {
  readonly content: string;
}

/** What a fake takes from a request; undefined if the real one would not accept it. */
type Accept = (request: Received) => TakenMessage | undefined;

export interface SmsFake {
  readonly origin: string;
  /** What was accepted. */
  readonly taken: readonly TakenMessage[];
  /** How many requests came, accepted or not. */
  requests(): number;
  behaves(behaviour: Behaviour): void;
  [Symbol.asyncDispose](): Promise<void>;
}

async function startFake(
  accept: Accept,
  respond: (response: ServerResponse, status: "taken" | "denied" | "refused") => void,
): Promise<SmsFake> {
  const taken: TakenMessage[] = [];
  let requests = 0;
  let behaviour: Behaviour = "takes";
  const held: (() => void)[] = [];
  const server = createServer(async (incoming, response) => {
    requests += 1;
    const message = accept(Object.assign(incoming, { content: await text(incoming) }));
    if (behaviour === "hangs") await new Promise<void>((release) => void held.push(release));
    if (behaviour === "redirects") response.writeHead(307, { location: `${origin}/elsewhere` }).end();
    else if (!message) respond(response, "denied");
    else if (behaviour === "refuses") respond(response, "refused");
    else {
      taken.push(message);
      respond(response, "taken");
    }
  });
  const origin = `http://127.0.0.1:${await listening(server, "127.0.0.1", 0)}`;
  return {
    origin,
    taken,
    requests: () => requests,
    behaves(next) {
      behaviour = next;
      for (const release of held.splice(0)) release();
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((closed) => server.close(closed));
    },
  };
}

/** The signature of Standard Webhooks. @param secret whsec_ and base64 */
export function standardSignature(secret: string, id: string, timestamp: string, content: string): Buffer {
  const key = Buffer.from(secret.slice("whsec_".length), "base64");
  return createHmac("sha256", key).update(`${id}.${timestamp}.${content}`).digest();
}

/** @param secret whsec_ and base64 */
export function startWebhookFake(secret: string): Promise<SmsFake> {
  return startFake(
    ({ method, headers, content }) => {
      const {
        "webhook-id": id,
        "webhook-timestamp": timestamp,
        "webhook-signature": signatures = "",
      } = headers;
      const own = standardSignature(secret, String(id), String(timestamp), content);
      const isSigned = String(signatures)
        .split(" ")
        .map((signature) => Buffer.from(signature.replace(/^v1,/, ""), "base64"))
        .some((signature) => signature.length === own.length && timingSafeEqual(signature, own));
      const isRecent = Math.abs(Date.now() / 1000 - Number(timestamp)) < 300;
      const { type, data } = JSON.parse(content);
      if (!isSigned || !isRecent || method !== "POST" || type !== "otp.message") return undefined;
      return data.text.includes(data.code) ? { phone: data.phone, text: data.text } : undefined;
    },
    (response, status) => response.writeHead({ taken: 204, denied: 401, refused: 400 }[status]).end(),
  );
}

export function startTwilioFake(accountSid: string, authToken: string): Promise<SmsFake> {
  const credentials = `Basic ${Buffer.from(`${accountSid}:${authToken}`).toString("base64")}`;
  return startFake(
    ({ method, url, headers, content }) => {
      const form = new URLSearchParams(content);
      const [to, body] = [form.get("To"), form.get("Body")];
      const isForm = headers["content-type"]?.startsWith("application/x-www-form-urlencoded");
      const isResource = url === `/2010-04-01/Accounts/${accountSid}/Messages.json`;
      const hasSender = form.has("From") !== form.has("MessagingServiceSid");
      if (method !== "POST" || headers.authorization !== credentials || !isForm || !isResource)
        return undefined;
      return to?.startsWith("+") && body && hasSender ? { phone: to, text: body } : undefined;
    },
    (response, outcome) => {
      const { status, code } = {
        taken: { status: 201, code: undefined },
        denied: { status: 401, code: 20_003 },
        refused: { status: 400, code: 21_408 },
      }[outcome];
      const message = "Permission to send an SMS has not been enabled for the region of +12025550100";
      const body = code ? { code, message, status } : { sid: `SM${"0".repeat(32)}`, status: "queued" };
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    },
  );
}
