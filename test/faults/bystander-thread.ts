/** The thread of bystander.ts. */
import { parentPort, workerData } from "node:worker_threads";
import { type BystanderTask, type Kind, kinds, type Sample } from "./bystander.ts";
import { HttpClient, type HttpResponse, isActive, isRefusal, member } from "./http-client.ts";

const { origin, calls, everyMs }: BystanderTask = workerData;
const http = new HttpClient();
let samples: Sample[] = [];

const isRight: Record<Kind, (response: HttpResponse) => boolean> = {
  introspection: (response) => response.status === 200 && isActive(response),
  token: (response) => response.status === 200 && member(response, "access_token") !== "",
  change: (response) => response.status === 204,
};

async function ask(kind: Kind): Promise<void> {
  const startedAt = Date.now();
  const from = performance.now();
  const response = await http.send(origin, calls[kind]);
  const outcome = isRight[kind](response) ? "right" : isRefusal(response) ? "refused" : "wrong";
  samples.push({ kind, startedAt, ms: performance.now() - from, outcome });
}

for (const kind of kinds) setInterval(() => void ask(kind), everyMs[kind]);
parentPort?.on("message", () => {
  parentPort?.postMessage(samples);
  samples = [];
});
