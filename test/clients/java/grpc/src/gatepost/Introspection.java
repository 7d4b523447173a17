package gatepost;

import gatepost.auth.v1.IntrospectRequest;
import gatepost.auth.v1.IntrospectResponse;
import gatepost.auth.v1.IntrospectionServiceGrpc;
import gatepost.auth.v1.IntrospectionServiceGrpc.IntrospectionServiceBlockingStub;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Base64;
import java.util.Objects;
import java.util.concurrent.TimeUnit;

/** Asks about an active token, a revoked one and none, and with a wrong secret. */
public final class Introspection {
  private Introspection() {}

  public static void main(String[] args) {
    ManagedChannel channel =
        NettyChannelBuilder.forTarget(environment("GATEPOST_GRPC")).usePlaintext().build();
    try {
      introspect(channel);
    } finally {
      channel.shutdownNow();
    }
  }

  private static void introspect(ManagedChannel channel) {
    var api = stub(channel, environment("GATEPOST_API_SECRET"));
    var active = api.introspect(request(environment("ACTIVE_TOKEN")));
    expect(true, active.getActive());
    expect(environment("USER_ID"), active.getSub());
    expect(environment("USER_ID"), active.getUserInfo().getUserId());
    expect("backend", active.getClientId());
    expect("Bearer", active.getTokenType());
    expect(true, active.getAudList().contains("storefront"));
    expect(environment("GATEPOST_ISSUER"), active.getIss());
    expect(true, Long.parseLong(active.getExp()) > Instant.now().getEpochSecond());

    var revoked = api.introspect(request(environment("REVOKED_TOKEN")));
    expect(IntrospectResponse.getDefaultInstance(), revoked);

    expect(Status.Code.INTERNAL, refusal(api, ""));
    expect(Status.Code.UNAUTHENTICATED, refusal(stub(channel, "wrong"), environment("ACTIVE_TOKEN")));
  }

  private static Status.Code refusal(IntrospectionServiceBlockingStub stub, String token) {
    try {
      stub.introspect(request(token));
      return Status.Code.OK;
    } catch (StatusRuntimeException refused) {
      return refused.getStatus().getCode();
    }
  }

  static IntrospectRequest request(String token) {
    return IntrospectRequest.newBuilder().setToken(token).build();
  }

  private static IntrospectionServiceBlockingStub stub(Channel channel, String secret) {
    return IntrospectionServiceGrpc.newBlockingStub(withCredentials(channel, secret))
        .withDeadlineAfter(30, TimeUnit.SECONDS);
  }

  static Channel withCredentials(Channel channel, String secret) {
    var credentials = ("api:" + secret).getBytes(StandardCharsets.UTF_8);
    var headers = new Metadata();
    headers.put(
        Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER),
        "Basic " + Base64.getEncoder().encodeToString(credentials));
    return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers));
  }

  static String environment(String name) {
    return Objects.requireNonNull(System.getenv(name), name + " is not set");
  }

  static void expect(Object expected, Object actual) {
    if (!expected.equals(actual)) throw new AssertionError("expected " + expected + ", got " + actual);
  }
}
