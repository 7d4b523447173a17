/** Asks whose access token `ACCESS_TOKEN` is. */
import { createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { IntrospectionService } from "./generated/rpc/auth/v1/introspection_pb.js";

const { GATEPOST_AUTH_URL = "", GATEPOST_API_SECRET, ACCESS_TOKEN = "" } = process.env;
const transport = createConnectTransport({ baseUrl: new URL(GATEPOST_AUTH_URL).origin });
const introspection = createClient(IntrospectionService, transport);
const headers = { authorization: `Basic ${btoa(`api:${GATEPOST_API_SECRET}`)}` };

const { active, sub } = await introspection.introspect({ token: ACCESS_TOKEN }, { headers });
process.stdout.write(active ? `active: ${sub}\n` : "not active\n");
