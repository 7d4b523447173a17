package gatepost;

import static gatepost.Introspection.environment;
import static gatepost.Introspection.expect;
import static gatepost.Introspection.request;
import static gatepost.Introspection.withCredentials;

import gatepost.auth.v1.IntrospectRequest;
import gatepost.auth.v1.IntrospectResponse;
import gatepost.auth.v1.IntrospectionServiceGrpc;
import io.grpc.Attributes;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientTransportFilter;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/** Connections: limits, keepalive and drain. */
public final class Connections {
  private static final AtomicInteger connections = new AtomicInteger();

  private Connections() {}

  public static void main(String[] args) throws Exception {
    var server = connect(environment("GATEPOST_GRPC"));
    try {
      limits(server);
      keepalive(server);
      expect(1, connections.get());
    } finally {
      server.shutdownNow();
    }
    var draining = connect(environment("GATEPOST_DRAINING_GRPC"));
    try {
      drain(draining, ProcessHandle.of(Long.parseLong(environment("GATEPOST_DRAINING_PID"))).orElseThrow());
    } finally {
      draining.shutdownNow();
    }
  }

  private static void limits(Channel channel) throws Exception {
    expect(Status.Code.RESOURCE_EXHAUSTED, introspect(channel, "x".repeat(65_536), CallOptions.DEFAULT));
    var longHeader = new Metadata();
    longHeader.put(Metadata.Key.of("x-long", Metadata.ASCII_STRING_MARSHALLER), "x".repeat(16_384));
    var refused = new Call(channel, CallOptions.DEFAULT, longHeader);
    refused.send("none");
    expect(Status.Code.INTERNAL, refused.code());

    expect(Status.Code.DEADLINE_EXCEEDED, held(channel, 200, TimeUnit.MILLISECONDS).code());
    var cancelled = held(channel, 30, TimeUnit.SECONDS);
    cancelled.call.cancel("no more", null);
    expect(Status.Code.CANCELLED, cancelled.code());
    var patient = CallOptions.DEFAULT.withDeadlineAfter(2, TimeUnit.DAYS);
    expect(Status.Code.OK, introspect(channel, "none", patient));
  }

  /** Three PINGs, ten seconds apart, are one more than servers endure that count them (gRFC A8). */
  private static void keepalive(Channel channel) throws Exception {
    TimeUnit.SECONDS.sleep(36);
    expect(Status.Code.OK, introspect(channel, "none", CallOptions.DEFAULT));
  }

  /** The call in flight finishes, and a new one finds no server. */
  private static void drain(ManagedChannel channel, ProcessHandle server) throws Exception {
    var inFlight = held(channel, 30, TimeUnit.SECONDS);
    expect(Status.Code.OK, introspect(channel, "none", CallOptions.DEFAULT));
    server.destroy();
    var code = Status.Code.OK;
    while (code == Status.Code.OK) code = introspect(channel, "none", CallOptions.DEFAULT);
    expect(Status.Code.UNAVAILABLE, code);
    inFlight.send("none");
    expect(Status.Code.OK, inFlight.code());
  }

  private static Status.Code introspect(Channel channel, String token, CallOptions options) throws Exception {
    var call = new Call(channel, options, new Metadata());
    call.send(token);
    return call.code();
  }

  private static Call held(Channel channel, long timeout, TimeUnit unit) {
    return new Call(channel, CallOptions.DEFAULT.withDeadlineAfter(timeout, unit), new Metadata());
  }

  private static ManagedChannel connect(String address) {
    return NettyChannelBuilder.forTarget(address)
        .usePlaintext()
        .keepAliveTime(10, TimeUnit.SECONDS)
        .keepAliveTimeout(5, TimeUnit.SECONDS)
        .keepAliveWithoutCalls(true)
        .addTransportFilter(
            new ClientTransportFilter() {
              @Override
              public Attributes transportReady(Attributes attributes) {
                connections.incrementAndGet();
                return attributes;
              }
            })
        .build();
  }

  /** An introspection that lasts until its message is sent. */
  private static final class Call extends ClientCall.Listener<IntrospectResponse> {
    final ClientCall<IntrospectRequest, IntrospectResponse> call;
    private final CompletableFuture<Status.Code> end = new CompletableFuture<>();

    Call(Channel channel, CallOptions options, Metadata headers) {
      var api = withCredentials(channel, environment("GATEPOST_API_SECRET"));
      call = api.newCall(IntrospectionServiceGrpc.getIntrospectMethod(), options);
      call.start(this, headers);
      call.request(2);
    }

    void send(String token) {
      call.sendMessage(request(token));
      call.halfClose();
    }

    Status.Code code() throws Exception {
      return end.get(60, TimeUnit.SECONDS);
    }

    @Override
    public void onClose(Status status, Metadata trailers) {
      end.complete(status.getCode());
    }
  }
}
