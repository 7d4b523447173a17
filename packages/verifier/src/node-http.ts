/** For servers of `node:http`, `node:https` and `node:http2`'s compatibility API. */
import type { AccessToken } from "./access-token.ts";
import { httpResponse, type Refusal } from "./refusal.ts";
import { checkRequirements, type Requirements } from "./requirements.ts";
import type { Verifier } from "./verifier.ts";

/** The part of `http.IncomingMessage` that is read. */
export interface IncomingRequest {
  readonly headers: { readonly authorization?: string | undefined };
}

/** The part of `http.ServerResponse` that is written to. */
export interface OutgoingResponse {
  writeHead(status: number, headers: Record<string, string>): unknown;
  end(body: string): unknown;
}

/** Sends a refusal. */
export function refuse(response: OutgoingResponse, refusal: Refusal): void {
  const { headers, body } = httpResponse(refusal);
  response.writeHead(refusal.status, headers);
  response.end(body);
}

/**
 * @returns a listener that calls `handle` for requests with a good token, and for no others. What `handle` throws ends
 *   the process, as it does without this: catch it there
 */
export function bearer<Request extends IncomingRequest, Response extends OutgoingResponse>(
  verifier: Verifier,
  handle: (request: Request, response: Response, token: AccessToken) => unknown,
  requirements: Requirements = {},
): (request: Request, response: Response) => Promise<void> {
  checkRequirements(requirements);
  return async (request, response) => {
    const { token, refusal } = await verifier.verify(request.headers.authorization, requirements);
    if (refusal) refuse(response, refusal);
    else await handle(request, response, token);
  };
}
