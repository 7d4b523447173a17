import { expect, test } from "vitest";
import { missingPrograms } from "./programs.ts";

const found = () => "/usr/sbin/program";
const away = () => undefined;

test("one line says which programs are missing, and how to get them", () => {
  const [nats, redis, haproxy] = [
    { name: "NATS", debian: "nats-server" },
    { name: "Redis", debian: "redis-server" },
    { name: "HAProxy", debian: "haproxy" },
  ] as const;
  expect(missingPrograms([{ ...nats, find: found }])).toBeUndefined();
  expect(
    missingPrograms([
      { ...nats, find: away },
      { ...redis, find: found },
      { ...haproxy, find: away },
    ]),
  ).toBe("Not on this machine: NATS, HAProxy. On Debian or Ubuntu: apt-get install nats-server haproxy");
});
