/** What an operator looks at beside the progress of a send. */
import { expect } from "vitest";
import type { components } from "../../../gen/openapi/push-orchestration.ts";
import type { Operator } from "./operator.ts";

type Schemas = components["schemas"];

async function listOf<T>({ call, as }: Operator, operation: string, query = ""): Promise<readonly T[]> {
  const { status, text } = await call(operation, { as, query });
  expect(status, text).toBe(200);
  const { content }: { readonly content: readonly T[] } = JSON.parse(text);
  return content;
}

/** The newest hundred. */
export const deadLetters = (operator: Operator) =>
  listOf<Schemas["DeadLetter"]>(operator, "listDeadLetters", "?size=100");

export async function statusOf(operator: Operator, provider: string) {
  const all = await listOf<Schemas["ProvidersList"]["content"][number]>(operator, "listProviders");
  return all.find((one) => one.provider === provider);
}

/** How many of a notification's messages a provider has taken. */
export async function sentBy({ progress }: Operator, id: string, name: string): Promise<number> {
  const parts = (await progress(id)).breakdown.filter(({ provider }) => provider === name);
  return parts.reduce((sum, { sent }) => sum + sent, 0);
}
