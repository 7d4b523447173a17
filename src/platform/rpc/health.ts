/**
 * grpc.health.v1 for the services of a server, implemented like any other service. Served on the gRPC port only: the
 * port of the HTTP APIs is public, and the management port has health checks over HTTP.
 */
import { EventEmitter, on } from "node:events";
import {
  Health,
  HealthCheckResponse_ServingStatus as Status,
} from "../../../gen/proto/grpc/health/v1/health_pb.ts";
import { ErrorKinds, ServiceError } from "../base/errors.ts";
import { implement, type RpcService } from "./service.ts";

/** The service name that stands for the whole server. */
const wholeServer = "";

export interface HealthService {
  readonly service: RpcService;
  /** The whole server serves while all of its services do. @param of all services unless given */
  setServing(serving: boolean, of?: readonly RpcService[]): void;
}

/** Creates the health service. No service serves yet. */
export function createHealth(services: readonly RpcService[]): HealthService {
  const names = services.map(({ descriptor }) => descriptor.typeName);
  const statuses = new Map<string, Status>([wholeServer, ...names].map((name) => [name, Status.NOT_SERVING]));
  // One event for all services: an event named by a caller could collide with the emitter's own, such as `error`.
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
      // Listens before the first response is sent, so that no change is missed meanwhile.
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
