import type { Verifier } from "@gatepost/verifier";
import { bearer, tokenOf } from "@gatepost/verifier/grpc-js";
import { type handleUnaryCall, Server, ServerCredentials } from "@grpc/grpc-js";

const bytes = (value: Buffer) => value;

function method(path: string) {
  return {
    ...{ path, requestStream: false, responseStream: false },
    ...{ requestSerialize: bytes, requestDeserialize: bytes },
    ...{ responseSerialize: bytes, responseDeserialize: bytes },
  };
}

export const whoAmIMethod = { whoAmI: method("/orders.v1.Orders/WhoAmI") };

/** @returns its address, when it listens */
export function listenGrpc(server: Server): Promise<string> {
  return new Promise((resolve, reject) => {
    server.bindAsync("127.0.0.1:0", ServerCredentials.createInsecure(), (error, port) => {
      if (error) reject(error);
      else resolve(`127.0.0.1:${port}`);
    });
  });
}

const whoAmI: handleUnaryCall<Buffer, Buffer> = (call, respond) =>
  respond(null, Buffer.from(tokenOf(call).sub));
const ping: handleUnaryCall<Buffer, Buffer> = (_call, respond) => respond(null, Buffer.from("pong"));

export function start(verifier: Verifier): Promise<string> {
  const interceptor = bearer(verifier, { scopes: ["orders"], exceptServices: ["open.v1.Open"] });
  const server = new Server({ interceptors: [interceptor] });
  server.addService(whoAmIMethod, { whoAmI });
  server.addService({ ping: method("/open.v1.Open/Ping") }, { ping });
  return listenGrpc(server);
}
