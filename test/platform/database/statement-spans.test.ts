import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { currentSpan, inSpan, within } from "../../../src/platform/base/tracing.ts";
import { batched } from "../../../src/platform/database/batched-lookup.ts";
import { inStatementSpan, inTransactionSpan } from "../../../src/platform/database/statement-spans.ts";
import { prepared } from "../../../src/platform/database/statements.ts";
import { recordSpans } from "../../support/recorded-spans.ts";

const request = { name: "request", kind: "server" } as const;
const done = async () => "done";

describe("the span of a statement", () => {
  test.each([
    [`select "id" from "auth"."clients" where "auth"."clients"."id" = $1`, "SELECT auth.clients"],
    [
      "select x from unnest((select $1::text[])) as t (x) join auth.authorizations a on true",
      "SELECT auth.authorizations",
    ],
    [
      `insert into "push"."devices" (a) values ($1) on conflict (a) do update set a = 1`,
      "INSERT push.devices",
    ],
    [`update "push"."devices" d set "x" = $1`, "UPDATE push.devices"],
    [`delete from "auth"."outbox" where "position" = any($1)`, "DELETE auth.outbox"],
    [
      `with a as (select from "auth"."identities" for update), b as (insert into "auth"."authorizations" select 1)
       insert into "auth"."outbox" select 1`,
      "INSERT auth.authorizations INSERT auth.outbox",
    ],
    ["with a as (select 1) select from a", "SELECT"],
    ["commit", "COMMIT"],
    ["", "STATEMENT"],
  ])("says what is done, to which tables: %s", async (text, name) => {
    const spans = recordSpans();
    await inSpan(request, () => inStatementSpan(text, done));
    const [operation] = name.split(" ");
    expect(spans.slice(1)).toMatchObject([
      {
        name,
        kind: "client",
        attributes: {
          "db.system.name": "postgresql",
          "db.operation.name": operation,
          "db.query.summary": name,
        },
        error: null,
      },
    ]);
  });

  test("in a transaction is a part of its span; what is done in the background has none", async () => {
    const spans = recordSpans();
    await inTransactionSpan(() => inStatementSpan("select 1", done));
    expect(spans).toEqual([]);
    await inSpan(request, () => inTransactionSpan(() => inStatementSpan("select 1", done)));
    const [around, transaction, statement] = spans;
    expect(transaction?.parent?.traceparent).toBe(around?.traceparent);
    expect(statement?.parent?.traceparent).toBe(transaction?.traceparent);
  });

  test("that fails has PostgreSQL's code, and nothing of the message", async () => {
    const spans = recordSpans();
    const failure = Object.assign(new Error("Key (phone)=(+15550001111)"), { code: "23505" });
    const failing = inSpan(request, () =>
      inStatementSpan("select 1", () => Promise.reject(new Error("Failed query", { cause: failure }))),
    );
    await failing.catch(() => undefined);
    expect(spans[1]?.error).toBe("23505");
    expect(JSON.stringify(spans)).not.toContain("+1555");
  });
});

describe("a statement that requests share", () => {
  const look = () =>
    batched<string, string>({
      load: (keys) => inStatementSpan("select 1", async () => new Map(keys.map((key) => [key, key]))),
    });

  test("is a part of none of them, and links to all, but to no more than 32", async () => {
    const spans = recordSpans();
    const shared = look();
    const requests = Array.from({ length: 40 }, (_, index) => inSpan(request, () => shared(`${index}`)));
    await Promise.all(requests);
    const batch = spans.find(({ name }) => name === "batch");
    const statement = spans.find(({ kind }) => kind === "client");
    const first32 = spans.slice(0, 32).map(({ traceparent }) => ({ traceparent }));
    expect(batch).toMatchObject({
      parent: undefined,
      links: first32,
      attributes: { "db.operation.batch.size": 40 },
    });
    expect(statement?.parent?.traceparent).toBe(batch?.traceparent);
    expect(spans).toHaveLength(42);
  });

  test("is a part of the only one that is recorded", async () => {
    const spans = recordSpans();
    const shared = look();
    const flags = (sampled: string) => ({
      ...request,
      parent: { traceparent: `00-${"a".repeat(32)}-${"b".repeat(16)}-${sampled}` },
    });
    await Promise.all([
      inSpan(flags("00"), () => shared("a")),
      inSpan(flags("01"), () => shared("b")),
      within(undefined, () => shared("c")),
    ]);
    expect(spans.map(({ name }) => name)).toEqual(["request", "request", "SELECT"]);
    expect(spans[2]?.parent?.traceparent).toBe(spans[1]?.traceparent);
  });

  test("that is prepared keeps nothing of the request that comes first", async () => {
    recordSpans();
    const seen: unknown[] = [];
    const statement = prepared(["a"], ({ a }) => {
      seen.push(currentSpan());
      return sql`select ${a}`;
    });
    await inSpan(request, async () => statement({ a: 1 }));
    expect(seen).toEqual([undefined]);
  });

  test("has no span where nobody who asks is recorded", async () => {
    const spans = recordSpans();
    expect(await look()("a")).toBe("a");
    expect(spans).toEqual([]);
  });
});
