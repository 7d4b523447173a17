/** `node main.ts introspection` or `node main.ts key-set`: an API that tells its callers who they are. */
import { createServer } from "node:http";
import { protect } from "./protect.ts";

const [, , protection = "introspection"] = process.argv;
const { verify }: typeof import("./key-set.ts") = await import(`./${protection}.ts`);

const server = createServer(protect(verify, (user, response) => response.end(user)));
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  if (typeof address === "object") process.stdout.write(`http://127.0.0.1:${address?.port}\n`);
});
