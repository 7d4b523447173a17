import { fetchAlone } from "../../platform/http2/fetch-alone.ts";
import { MessageRefused } from "./text-message.ts";

/**
 * Posts a message to what delivers it.
 * @param receiver what the log calls it, such as the setting with its address
 * @throws MessageRefused if no connection came about, so that surely nothing was sent
 */
export async function postMessage(request: Request, receiver: string): Promise<Response> {
  let isSending = false;
  try {
    return await fetchAlone(request, () => {
      isSending = true;
    });
  } catch (error) {
    if (isSending) throw error;
    throw new MessageRefused(`no connection to ${receiver}`, { cause: error });
  }
}
