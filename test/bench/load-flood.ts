/**
 * One client that floods a port over TLS, on one connection after the other. Prints one JSON line.
 *
 *   node load-flood.ts <port> <flood> <seconds>
 */
import { flood, floodNames } from "../support/http2-floods.ts";

const [port, flooded, seconds] = process.argv.slice(2);
const name = floodNames.find((one) => one === flooded);
if (name === undefined) throw new Error(`There is no flood ${flooded}`);

/** How often connections were cut, by the code of GOAWAY. */
const cuts: Record<string, number> = {};
let writes = 0;
const until = performance.now() + Number(seconds) * 1_000;
for (let left = until - performance.now(); left > 0; left = until - performance.now()) {
  const { goaway, isCut, ...seen } = await flood(Number(port), name, { isSecure: true, forMs: left });
  writes += seen.writes;
  const code = goaway === undefined ? "none" : `${goaway}`;
  if (isCut) cuts[code] = (cuts[code] ?? 0) + 1;
}
process.stdout.write(`${JSON.stringify({ writes, cuts })}\n`);
