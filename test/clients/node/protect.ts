import type { RequestListener, ServerResponse } from "node:http";

/** Whether the token is good cannot be said at the moment. */
export class Unavailable extends Error {}

/** Lets only requests with a good access token through to the handler, which is given the user's id. */
export function protect(
  verify: (token: string) => Promise<string | undefined>,
  handle: (user: string, response: ServerResponse) => void,
): RequestListener {
  return async (request, response) => {
    const [, token] = /^Bearer +(\S+)$/i.exec(request.headers.authorization ?? "") ?? [];
    try {
      const user = token && (await verify(token));
      if (user) handle(user, response);
      else response.writeHead(401, { "www-authenticate": "Bearer" }).end();
    } catch (error) {
      response.writeHead(error instanceof Unavailable ? 503 : 500).end();
    }
  };
}
