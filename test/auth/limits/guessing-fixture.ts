/** Guesses, many at once or one by one, for the tests of a file. */
import { randomUUID } from "node:crypto";
import { setTimeout } from "node:timers/promises";
import { type Answer, type AuthApi, backoffice, internal, mobileApp } from "../../support/auth-api.ts";

/** Does the work so many times at once. */
export function times<T>(count: number, work: (index: number) => Promise<T>): Promise<T[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => work(index)));
}

export async function oneByOne<T, R>(items: Iterable<T>, work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  for (const item of items) results.push(await work(item));
  return results;
}

/** Sorted. */
export const statuses = (responses: readonly Answer[]) => responses.map(({ status }) => status).sort();
export const repeat = (count: number, status: number) => Array.from({ length: count }, () => status);

/** Tries again while there is no room to check a password, as is the case on a busy machine: that is no guess. */
export async function untilChecked(guess: () => Promise<Answer>): Promise<Answer> {
  for (;;) {
    const answer = await guess();
    if (answer.status !== 503) return answer;
    await setTimeout(100);
  }
}

/** @param api of the server, which is there once a test runs */
export const guessesAt = (api: () => AuthApi) => ({
  guess: (username: string, password: string = randomUUID(), as = backoffice) =>
    untilChecked(() => api().token({ grant_type: "password", username, password }, as)),
  guessCode: (phone: string, password = "000000", as = mobileApp) =>
    api().token({ grant_type: "phone_otp", phone, password }, as),
  /** An identity with the password `right horse`. */
  async someone(fields: { email?: string } = {}) {
    const identity = await api().newIdentity(fields);
    const json = { password: "right horse" };
    await api().call("setIdentityPassword", { as: internal, path: { id: identity.id }, json });
    return identity;
  },
});
