/** When a response begins to be sent: from then on, its client alone decides how long it takes. */
import { ServerResponse } from "node:http";
import type { ServerHttp2Stream } from "node:http2";

/** Calls back when the headers of the response are sent, explicitly or with the first of its body. */
export function onceResponding(response: ServerResponse | ServerHttp2Stream, responding: () => void): void {
  if (response instanceof ServerResponse) {
    const { writeHead } = response;
    response.writeHead = (...args: unknown[]) => {
      responding();
      return Reflect.apply(writeHead, response, args);
    };
  } else {
    const { respond } = response;
    response.respond = (...args: unknown[]) => {
      responding();
      Reflect.apply(respond, response, args);
    };
  }
}
