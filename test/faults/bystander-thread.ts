/** The thread of bystander.ts. */
import { parentPort, workerData } from "node:worker_threads";
import { type BystanderTask, type Kind, kinds, type Sample } from "./bystander.ts";
import { HttpClient, isActive, isRefusal, member, type Reply } from "./http-client.ts";

const { origin, calls, everyMs }: BystanderTask = workerData;
const http = new HttpClient();
let samples: Sample[] = [];

const isRight: Record<Kind, (reply: Reply) => boolean> = {
  introspection: (reply) => reply.status === 200 && isActive(reply),
  token: (reply) => reply.status === 200 && member(reply, "access_token") !== "",
  change: (reply) => reply.status === 204,
};

async function ask(kind: Kind): Promise<void> {
  const startedAt = Date.now();
  const from = performance.now();
  const reply = await http.send(origin, calls[kind]);
  const outcome = isRight[kind](reply) ? "right" : isRefusal(reply) ? "refused" : "wrong";
  samples.push({ kind, startedAt, ms: performance.now() - from, outcome });
}

for (const kind of kinds) setInterval(() => void ask(kind), everyMs[kind]);
parentPort?.on("message", () => {
  parentPort?.postMessage(samples);
  samples = [];
});
