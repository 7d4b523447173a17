/** Routes that are served on Node's own request and response, beside those of Hono. */
import type { IncomingMessage } from "node:http";
import type { HttpResponse } from "./responding.ts";

/** A route of one method and one literal path, for requests with a body. */
export interface DirectRoute {
  /** In upper case. */
  readonly method: string;
  /** As it is written in a request: no parameters, nothing encoded. */
  readonly path: string;
  /** Responds to the request. Rejects if the response cannot be written, and throws nothing before. */
  handle(request: IncomingMessage, response: HttpResponse): Promise<void>;
}
