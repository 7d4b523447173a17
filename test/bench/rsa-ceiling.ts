/** The ceiling for issuing tokens: RSA-2048 signatures of one core, one after the other. */
import { generateKeyPairSync, sign } from "node:crypto";

const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
const data = Buffer.alloc(400, "a");
const seconds = Number(process.argv[2]);
for (let warm = 0; warm < 200; warm += 1) sign("sha256", data, privateKey);
const started = performance.now();
let count = 0;
while (performance.now() - started < seconds * 1000) {
  sign("sha256", data, privateKey);
  count += 1;
}
process.stdout.write(`${JSON.stringify({ perSecond: (count * 1000) / (performance.now() - started) })}\n`);
