/** What is found done is found again after a commit that began later, wherever that is made. */
import { describe, expect, it } from "vitest";
import { confirmFound, createConfirm } from "../../../src/platform/database/confirm.ts";
import type { Executor } from "../../../src/platform/database/database.ts";

/** A database whose commits end when they are told to. */
function slowCommits() {
  const commits: PromiseWithResolvers<void>[] = [];
  // The results of statements are of no use here.
  const execute: unknown = () => {
    const commit = Promise.withResolvers<void>();
    commits.push(commit);
    return commit.promise;
  };
  const isExecute = (value: unknown): value is Executor["execute"] => typeof value === "function";
  if (!isExecute(execute)) throw new Error("not a function");
  return { commits, confirm: createConfirm({ execute }) };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe("what another has committed", () => {
  it("is done again where the commit after it was made at a server that does not have it", async () => {
    const servers = [new Set(["ended"]), new Set<string>()];
    let primary = 0;
    const end = async () => {
      const ended = servers[primary];
      const isFirst = ended?.has("ended") === false;
      ended?.add("ended");
      return isFirst;
    };
    const failOver = async () => {
      primary = 1;
    };
    const found = (outcome: PromiseSettledResult<boolean>) =>
      outcome.status === "fulfilled" && !outcome.value;
    expect(await confirmFound(failOver, end, found)).toBe(true);
    expect(servers[1]).toContain("ended");
  });

  it("is not told where nobody confirms a commit", async () => {
    const lost = async () => {
      throw new Error("unconfirmed");
    };
    let acts = 0;
    const refuse = async () => {
      acts += 1;
      throw new Error("not found");
    };
    await expect(confirmFound(lost, refuse, () => true)).rejects.toThrow("unconfirmed");
    expect(acts).toBe(1);
  });

  it("costs no commit where the request did it itself, or was refused for another reason", async () => {
    const never = async () => {
      throw new Error("a commit");
    };
    expect(
      await confirmFound(
        never,
        async () => "done",
        () => false,
      ),
    ).toBe("done");
    const refused = confirmFound(
      never,
      () => Promise.reject(new Error("bad input")),
      () => false,
    );
    await expect(refused).rejects.toThrow("bad input");
  });
});

describe("a confirming commit", () => {
  it("is never one that had begun before it was asked for, and is shared by those who wait", async () => {
    const { commits, confirm } = slowCommits();
    const resolved: string[] = [];
    const ask = (name: string) => confirm().then(() => resolved.push(name));
    const first = ask("first");
    await turn();
    const later = [ask("second"), ask("third")];
    await turn();
    expect(commits).toHaveLength(1);
    commits[0]?.resolve();
    await first;
    await turn();
    expect(resolved).toEqual(["first"]);
    expect(commits).toHaveLength(2);
    commits[1]?.resolve();
    await Promise.all(later);
    expect(commits).toHaveLength(2);
  });

  it("fails for those who wait for the next one too, and for nobody after them", async () => {
    const { commits, confirm } = slowCommits();
    const first = confirm();
    await turn();
    const waiting = confirm();
    const both = Promise.allSettled([first, waiting]);
    commits[0]?.reject(new Error("unconfirmed"));
    expect((await both).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    expect(commits).toHaveLength(1);
    const next = confirm();
    await turn();
    commits[1]?.resolve();
    await next;
  });
});
