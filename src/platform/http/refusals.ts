/** The errors of what Node refuses before there is a request, each as a problem like any other error. */
import { maxHeaderSize, STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import { codeOf } from "../base/error-code.ts";
import { type ErrorKind, ErrorKinds, ServiceError } from "../base/errors.ts";
import { hosts } from "../door/door.ts";
import type { NodeRequest, ResponseParts } from "../door/responses.ts";
import { withoutQuery } from "../door/targets.ts";

/** No member of the services' lists of codes: only the status tells these apart. */
const invalid = (status: number, title: string): ErrorKind => ({
  ...ErrorKinds.invalidRequest,
  status,
  title,
});

/** The error for an `Expect` header that is not `100-continue` (RFC 9110 section 10.1.1). */
export function expectationFailed(): ServiceError {
  const detail = "The only Expect that can be met is 100-continue.";
  return new ServiceError(invalid(417, "Expectation failed"), detail);
}

/** A path segment of one or two dots, or a backslash, which URL parsers read as a slash. */
const dotSegment = /[/\\]\.{1,2}([/\\]|$)|\\/;

/** The error for a request, its target in its one form, that a proxy and this server could take for different ones. */
export function ambiguousRequest(request: NodeRequest): ServiceError | undefined {
  const { url = "", rawHeaders, headers, httpVersionMajor } = request;
  const coding = headers["transfer-encoding"];
  if (coding !== undefined && !/^chunked$/i.test(coding)) {
    const detail = "Of the transfer codings, only chunked is understood: send the body without any other.";
    return new ServiceError(invalid(501, "Not implemented"), detail);
  }
  if (!url.startsWith("/") || dotSegment.test(withoutQuery(url))) {
    const detail = "The target of the request has no path, or one with dot segments or a backslash.";
    return new ServiceError(ErrorKinds.invalidRequest, detail);
  }
  // A target has none (RFC 9112 section 3.2), and some readers take what is before it for the path.
  if (url.includes("#")) {
    return new ServiceError(ErrorKinds.invalidRequest, "The target of the request has a fragment.");
  }
  // HTTP/2 names the host in a pseudo-header, beside which a proxy may have left another one.
  if (httpVersionMajor > 1) return undefined;
  return hosts(rawHeaders) > 1
    ? new ServiceError(ErrorKinds.invalidRequest, "The request has several Host headers.")
    : undefined;
}

/** The error for an error of Node's parser, or of its timeouts. */
export function unreadableRequest(cause: unknown): ServiceError {
  switch (codeOf(cause)) {
    case "HPE_HEADER_OVERFLOW":
      return new ServiceError(
        invalid(431, "Request header fields too large"),
        `The target and the headers of the request are larger than ${maxHeaderSize} bytes.`,
      );
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new ServiceError(invalid(408, "Request timeout"), "The request did not arrive in time.");
    case "HPE_PAUSED_H2_UPGRADE":
      return new ServiceError(
        ErrorKinds.invalidRequest,
        "This port speaks HTTP/2 over TLS only. Without TLS, HTTP/2 is spoken by gRPC on the port of GRPC_PORT.",
      );
    case "HPE_INVALID_METHOD":
      return new ServiceError(ErrorKinds.invalidRequest, "The method of the request is unknown.");
    default:
      return new ServiceError(ErrorKinds.invalidRequest, "The request is not valid HTTP.");
  }
}

/** Writes a response where there is no request to respond to, and closes the connection. */
export function respondAndClose(socket: Duplex, { status, headers, body }: ResponseParts): void {
  const content = JSON.stringify(body);
  const lines = Object.entries({
    ...headers,
    "Content-Length": String(Buffer.byteLength(content)),
    Date: new Date().toUTCString(),
    Connection: "close",
  }).map(([name, value]) => `${name}: ${value}`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("\r\n")}\r\n\r\n${content}`, () =>
    socket.destroy(),
  );
}
