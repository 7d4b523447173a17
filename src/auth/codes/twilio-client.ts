import { postMessage } from "./post-message.ts";
import { MessageRefused, type SendMessage } from "./text-message.ts";

interface Settings {
  readonly accountSid: string;
  readonly authToken: string;
  /** A number, a name, or the SID of a messaging service. */
  readonly from: string;
  /** Another one for tests. */
  readonly endpoint?: string;
}

/** A client of Twilio's Messages resource, API version 2010-04-01. */
export function createTwilioClient(settings: Settings): SendMessage {
  const { accountSid, authToken, from, endpoint = "https://api.twilio.com" } = settings;
  const url = `${endpoint}/2010-04-01/Accounts/${accountSid}/Messages.json`;
  const authorization = `Basic ${Buffer.from(`${accountSid}:${authToken}`).toString("base64")}`;
  const sentBy = /^MG[0-9a-f]{32}$/.test(from) ? "MessagingServiceSid" : "From";

  return async ({ phone, text }, signal) => {
    const body = new URLSearchParams({ To: phone, [sentBy]: from, Body: text });
    const headers = { Authorization: authorization };
    const request = new Request(url, { method: "POST", headers, body, signal });
    const response = await postMessage(request, "Twilio");
    if (response.ok) return;
    throw new MessageRefused(`Twilio's response is ${response.status}${await errorCodeOf(response)}`);
  };
}

/** Twilio's number for the error, by which its documentation explains it. Its message may have the phone in it. */
async function errorCodeOf(response: Response): Promise<string> {
  const error: unknown = await response.json().catch(() => undefined);
  const hasCode = typeof error === "object" && error !== null && "code" in error;
  return hasCode && Number.isSafeInteger(error.code) ? `, error ${error.code}` : "";
}
