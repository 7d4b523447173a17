package gatepost;

import gatepost.auth.v1.IntrospectRequest;
import gatepost.auth.v1.IntrospectionServiceGrpc;
import io.grpc.Metadata;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.concurrent.TimeUnit;

/** Asks whose access token {@code ACCESS_TOKEN} is. */
public final class Introspect {
  private Introspect() {}

  public static void main(String[] args) {
    var credentials = ("api:" + System.getenv("GATEPOST_API_SECRET")).getBytes(StandardCharsets.UTF_8);
    var headers = new Metadata();
    headers.put(
        Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER),
        "Basic " + Base64.getEncoder().encodeToString(credentials));
    var channel = NettyChannelBuilder.forTarget(System.getenv("GATEPOST_GRPC")).usePlaintext().build();
    try {
      var result =
          IntrospectionServiceGrpc.newBlockingStub(channel)
              .withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers))
              .withDeadlineAfter(30, TimeUnit.SECONDS)
              .introspect(IntrospectRequest.newBuilder().setToken(System.getenv("ACCESS_TOKEN")).build());
      System.out.println(result.getActive() ? "active: " + result.getSub() : "not active");
    } finally {
      channel.shutdownNow();
    }
  }
}
