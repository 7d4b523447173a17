/** The protos of a service, served beside its document: as written, compiled, and as what its events are. */
import { readdirSync, readFileSync } from "node:fs";

export interface Protos {
  /** The text of each file, by the path that other files import it by, such as `orders/v1/orders.proto`. */
  readonly files: ReadonlyMap<string, string>;
  /** All files and what they import, as a google.protobuf.FileDescriptorSet. */
  readonly descriptorSet: Buffer;
  /** The events that the service publishes, as an AsyncAPI document in JSON. */
  readonly asyncapi: Buffer;
}

/** @param folder of the service in proto/ */
export function readProtos(folder: string): Protos {
  const root = new URL("../../../", import.meta.url);
  const paths = readdirSync(new URL(`proto/${folder}`, root), { recursive: true, encoding: "utf8" })
    .filter((path) => path.endsWith(".proto"))
    .map((path) => `${folder}/${path.replaceAll("\\", "/")}`)
    .sort();
  return {
    files: new Map(paths.map((path) => [path, readFileSync(new URL(`proto/${path}`, root), "utf8")])),
    descriptorSet: readFileSync(new URL(`gen/descriptors/${folder}.binpb`, root)),
    asyncapi: readFileSync(new URL(`gen/asyncapi/${folder}.json`, root)),
  };
}
