/**
 * grpc.health.v1 for the services of a server, in the terms of any other service. Served on the gRPC port only: the
 * port of the HTTP APIs is public, and how the server is doing is told on the management port.
 */
import { EventEmitter, on } from "node:events";
import {
  Health,
  HealthCheckResponse_ServingStatus as Status,
} from "../../../gen/proto/grpc/health/v1/health_pb.ts";
import { ErrorKinds, ServiceError } from "../base/errors.ts";
import { implement, type RpcService } from "./service.ts";

/** The server as a whole, among the names of services. */
const wholeServer = "";

export interface HealthService {
  readonly service: RpcService;
  /** The server as a whole serves while all of its services do. @param of all unless given */
  setServing(serving: boolean, of?: readonly RpcService[]): void;
}

/** None of them serves yet. */
export function createHealth(services: readonly RpcService[]): HealthService {
  const names = services.map(({ descriptor }) => descriptor.typeName);
  const statuses = new Map<string, Status>([wholeServer, ...names].map((name) => [name, Status.NOT_SERVING]));
  // One event for all: an event by a name that a caller chose could be one of the emitter's own.
  const changes = new EventEmitter<{ change: [name: string, status: Status] }>().setMaxListeners(0);

  function set(name: string, status: Status): void {
    if (statuses.get(name) === status) return;
    statuses.set(name, status);
    changes.emit("change", name, status);
  }

  const service = implement(Health, {
    async check({ service: name }) {
      const status = statuses.get(name);
      if (status === undefined)
        throw new ServiceError(ErrorKinds.notFound, "The server has no such service.");
      return { status };
    },
    async list() {
      return { statuses: Object.fromEntries([...statuses].map(([name, status]) => [name, { status }])) };
    },
    async *watch({ service: name }, { signal }) {
      // Listens from here on, so that no change is missed while the first answer is taken.
      const changed = on(changes, "change", { signal });
      try {
        yield { status: statuses.get(name) ?? Status.SERVICE_UNKNOWN };
        for await (const [of, status] of changed) if (of === name) yield { status };
      } finally {
        await changed.return?.();
      }
    },
  });

  return {
    service,
    setServing(serving, of = services) {
      for (const { descriptor } of of)
        set(descriptor.typeName, serving ? Status.SERVING : Status.NOT_SERVING);
      const all = names.every((name) => statuses.get(name) === Status.SERVING);
      set(wholeServer, all ? Status.SERVING : Status.NOT_SERVING);
    },
  };
}
