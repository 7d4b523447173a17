/** The checkouts of the project that `npm run bench` measures. */
import { rmSync } from "node:fs";
import { basename, join } from "node:path";
import { pathToFileURL } from "node:url";
import { localhostCertificate } from "../support/localhost-certificate.ts";
import type { Preparation } from "./prepare.ts";
import type { BenchServer } from "./processes.ts";
import { basic, startProduct, warmIntrospection } from "./product.ts";
import { print, showProgress } from "./progress.ts";

/** A checkout of the project under load. */
export interface Contestant {
  readonly name: string;
  readonly place: number;
  readonly preparation: Preparation;
  /** The Authorization headers of the two clients. */
  readonly application: string;
  readonly introspector: string;
  readonly server: BenchServer;
  /** Another process on the same database, with TLS. */
  readonly secured: BenchServer | undefined;
}

/** This checkout, and the one that it is measured beside, if there is one. */
export type Contestants = readonly [first: Contestant, other: Contestant | undefined];

/** Between the places of a checkout's two processes. */
export const toSecured = 2;

/**
 * @param count authorizations in its database
 * @param root another checkout, which prepares its own database; this one unless given
 */
export async function startContestant(
  place: number,
  { count, isSecured, root }: { count: number; isSecured: boolean; root?: string | undefined },
): Promise<Contestant> {
  const { prepare, application, introspector }: typeof import("./prepare.ts") =
    root === undefined
      ? await import("./prepare.ts")
      : await import(pathToFileURL(join(root, "test/bench/prepare.ts")).href);
  const name = basename(root ?? join(import.meta.dirname, "../.."));
  print(`Preparing ${count.toLocaleString("en-US")} authorizations and their tokens in PostgreSQL ...`);
  const preparation = await prepare(count, (done) => {
    showProgress(`${done.toLocaleString("en-US")} tokens signed`);
  });
  showProgress("");
  const program = root === undefined ? undefined : join(root, "src/start.js");
  const server = await startProduct(preparation, place, {}, program);
  print("Letting the server see every token once, as it would in its first minutes ...");
  await warmIntrospection(preparation, place, introspector);
  const callers = { application: basic(application), introspector: basic(introspector) };
  const settings = { TLS_CERT: localhostCertificate.cert, TLS_KEY: localhostCertificate.key };
  const secured = isSecured
    ? await startProduct(preparation, place + toSecured, settings, program)
    : undefined;
  return { name, place, preparation, ...callers, server, secured };
}

export async function stopContestant({ server, secured, preparation }: Contestant): Promise<void> {
  await server.stop();
  await secured?.stop();
  await preparation.database.drop();
  rmSync(preparation.directory, { recursive: true, force: true });
}
