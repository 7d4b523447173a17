package gatepost;

import gatepost.auth.IdentitiesApi;
import gatepost.auth.IdentitiesApi.APICreateIdentityRequest;
import gatepost.auth.IdentityCreation;
import gatepost.auth.OAuthApi;
import gatepost.auth.OAuthApi.APIGenerateTokensRequest;
import gatepost.auth.OAuthApi.APIIntrospectTokenRequest;
import gatepost.push.DevicesApi;
import gatepost.push.DevicesApi.APISavePushTokenRequest;
import gatepost.push.PushToken;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

/** Creates a user, gets tokens, asks about one, and registers a device. */
public final class Connect {
  private Connect() {}

  public static void main(String[] args) throws Exception {
    var internal = auth(basic("internal", System.getenv("GATEPOST_INTERNAL_SECRET")));
    var app = auth(basic("backend", System.getenv("GATEPOST_BACKEND_SECRET")));
    var api = auth(basic("api", System.getenv("GATEPOST_API_SECRET")));

    var now = String.valueOf(System.currentTimeMillis());
    var creation = new IdentityCreation().id("u-" + now).phone("+1202" + (2_000_000 + System.nanoTime() % 7_000_000));
    new IdentitiesApi(internal)
        .createIdentity(APICreateIdentityRequest.newBuilder().identityCreation(creation).build());
    var tokens =
        new OAuthApi(app)
            .generateTokens(
                APIGenerateTokensRequest.newBuilder().grantType("auth").authId(creation.getId()).build());

    var asking = APIIntrospectTokenRequest.newBuilder().token(tokens.getAccessToken()).build();
    var introspection = new OAuthApi(api).introspectToken(asking);
    System.out.println(introspection.getActive() ? "active: " + introspection.getSub() : "not active");

    var device = new PushToken().token("device-" + now).expiration("2035-01-01T00:00:00Z");
    new DevicesApi(push("Bearer " + tokens.getAccessToken()))
        .savePushToken(
            APISavePushTokenRequest.newBuilder().pushToken(device).barrierUserUtcOffset("+05:45").build());
  }

  private static gatepost.auth.ApiClient auth(String authorization) {
    var client = new gatepost.auth.ApiClient();
    client.updateBaseUri(System.getenv("GATEPOST_AUTH_URL"));
    client.setRequestInterceptor(request -> request.header("Authorization", authorization));
    return client;
  }

  private static gatepost.push.ApiClient push(String authorization) {
    var client = new gatepost.push.ApiClient();
    client.updateBaseUri(System.getenv("GATEPOST_PUSH_URL"));
    client.setRequestInterceptor(request -> request.header("Authorization", authorization));
    return client;
  }

  private static String basic(String client, String secret) {
    var credentials = (client + ":" + secret).getBytes(StandardCharsets.UTF_8);
    return "Basic " + Base64.getEncoder().encodeToString(credentials);
  }
}
