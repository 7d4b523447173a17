/** Asks whose access token `ACCESS_TOKEN` is. */
import { createConnectTransport } from "@connectrpc/connect-web";
import { basic, introspectionClient } from "@gatepost/client/connect";

const { GATEPOST_AUTH_URL = "", GATEPOST_API_SECRET = "", ACCESS_TOKEN = "" } = process.env;
const transport = createConnectTransport({
  baseUrl: new URL(GATEPOST_AUTH_URL).origin,
  interceptors: [basic({ clientId: "api", clientSecret: GATEPOST_API_SECRET })],
});
const { active, sub } = await introspectionClient(transport).introspect({ token: ACCESS_TOKEN });
process.stdout.write(active ? `active: ${sub}\n` : "not active\n");
