/** A process that shares a session with others: refreshes when it is told to, and tells how that has ended. */
import { folderStore } from "../../../packages/client/src/node.ts";
import { createSession } from "../../../packages/client/src/session.ts";

const [, , authUrl = "", clientSecret = "", folder = ""] = process.argv;
const client = { clientId: "backend", clientSecret };
const session = createSession({
  ...{ authUrl, client, store: folderStore(folder) },
  onSignedOut: (ended) => process.send?.({ ended }),
});
let token = await session.accessToken();

process.on("message", async () => {
  try {
    token = await session.accessToken(token);
    process.send?.({ token });
  } catch (error) {
    process.send?.({ error: String(error) });
  }
});
process.send?.({ token });
