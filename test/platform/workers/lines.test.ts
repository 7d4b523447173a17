/** Lines of several processes on one output. */
import { Readable, Writable } from "node:stream";
import { expect, test } from "vitest";
import { passLines } from "../../../src/platform/workers/lines.ts";

/** An output that takes one write at a time, and says what came in which order. */
function slowOutput() {
  const written: string[] = [];
  const output = new Writable({
    highWaterMark: 1,
    write(chunk, _encoding, done) {
      written.push(String(chunk));
      setImmediate(done);
    },
  });
  output.setMaxListeners(0);
  return { output, written };
}

const pieces = (...texts: string[]) => Readable.from(texts.map((text) => Buffer.from(text)));

test("passes on whole lines, however they arrive, and ends the last one", async () => {
  const { output, written } = slowOutput();
  await passLines(pieces("on", "e\ntwo\nthr", "ee\n", "ü".repeat(3), "\nlast"), output);
  expect(written).toEqual(["one\ntwo\n", "three\n", "üüü\n", "last\n"]);
});

test("tears no line of two writers", async () => {
  const { output, written } = slowOutput();
  const long = (letter: string) => [letter.repeat(70_000), `${letter}\n${letter}`, `${letter}\n`];
  await Promise.all(["a", "b"].map((letter) => passLines(pieces(...long(letter)), output)));
  await new Promise<void>((resolve) => output.end(resolve));
  const lines = written.join("").trimEnd().split("\n");
  expect(lines.filter((line) => new Set(line).size !== 1)).toEqual([]);
  expect(lines.map(({ length }) => length).sort()).toEqual([2, 2, 70_001, 70_001].sort());
});

test("closes what it reads from when nobody reads the output: the writer is to know", async () => {
  const { output } = slowOutput();
  output.on("error", () => undefined);
  const from = new Readable({ read: () => undefined });
  const passing = passLines(from, output);
  output.destroy(new Error("EPIPE"));
  from.push("line\n");
  await passing;
  expect(from.destroyed).toBe(true);
});
