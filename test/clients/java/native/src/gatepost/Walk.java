package gatepost;

import gatepost.auth.IdentitiesApi;
import gatepost.auth.IdentitiesApi.APICreateIdentityRequest;
import gatepost.auth.IdentitiesApi.APIGetIdentityRequest;
import gatepost.auth.IdentitiesApi.APISetIdentityPasswordRequest;
import gatepost.auth.IdentityCreation;
import gatepost.auth.IdentityPassword;
import gatepost.auth.OAuthApi;
import gatepost.auth.OAuthApi.APIGenerateTokensRequest;
import gatepost.auth.OAuthApi.APIIntrospectTokenRequest;
import gatepost.auth.OAuthApi.APIRevokeTokenRequest;
import gatepost.auth.TokenPair;
import gatepost.auth.TokenType;
import gatepost.push.Audience;
import gatepost.push.DevicesApi;
import gatepost.push.DevicesApi.APIDeletePushTokenRequest;
import gatepost.push.DevicesApi.APISavePushTokenRequest;
import gatepost.push.HistoryApi;
import gatepost.push.HistoryApi.APIGetNotificationsHistoryRequest;
import gatepost.push.HistoryApi.APIGetNotificationsSummaryRequest;
import gatepost.push.NotificationCreation;
import gatepost.push.NotificationState;
import gatepost.push.NotificationText;
import gatepost.push.NotificationTexts;
import gatepost.push.OperationApi;
import gatepost.push.OperationApi.APIGetNotificationRequest;
import gatepost.push.PushNotification;
import gatepost.push.PushToken;
import gatepost.push.PushTokenReference;
import gatepost.push.SendingApi;
import gatepost.push.SendingApi.APICreateNotificationRequest;
import gatepost.push.SendingApi.APISendPushNotificationRequest;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;

/** Create, token, introspect, refresh, revoke; device, send, history. Ends with an exception where a step fails. */
public final class Walk {
  private static final String INTERNAL = basic("internal", "GATEPOST_INTERNAL_SECRET");
  private static final String API = basic("api", "GATEPOST_API_SECRET");
  private static final String BACKEND = basic("backend", "GATEPOST_BACKEND_SECRET");
  private static final String BACKOFFICE = basic("backoffice", "GATEPOST_BACKOFFICE_SECRET");

  private Walk() {}

  public static void main(String[] args) throws Exception {
    var user = createIdentity();
    useTokens(user);
    sendNotification(user);
  }

  private static String createIdentity() throws Exception {
    var id = "u-" + UUID.randomUUID();
    var phone = "+1202" + ThreadLocalRandom.current().nextInt(2_000_000, 10_000_000);
    var identities = new IdentitiesApi(auth(INTERNAL));
    var creation =
        new IdentityCreation().id(id).phone(phone).email(id + "@example.com").metadata(Map.of("language", "en"));
    var creating = APICreateIdentityRequest.newBuilder().identityCreation(creation).build();
    var created = identities.createIdentity(creating);
    expect(id, created.getId());
    expect(phone, created.getPhone());
    expect(Map.of("language", "en"), created.getMetadata());
    expect(1, created.getAuthenticationTypes().size());
    expect(created, identities.getIdentity(APIGetIdentityRequest.newBuilder().id(id).build()));
    try {
      identities.createIdentity(creating);
      throw new AssertionError("an identity was created twice");
    } catch (gatepost.auth.ApiException refused) {
      expect(409, refused.getCode());
      check(refused.getResponseBody().contains("identity_id_taken"), refused.getResponseBody());
    }
    return id;
  }

  private static void useTokens(String user) throws Exception {
    var app = new OAuthApi(auth(BACKEND));
    var api = new OAuthApi(auth(API));
    var first = tokensOf(user);
    expect(TokenType.BEARER, first.getTokenType());
    check(first.getExpiresIn() > 0, "it lives");
    var active = api.introspectToken(asking(first));
    expect(true, active.getActive());
    expect(user, active.getSub());
    expect("backend", active.getClientId());
    expect(TokenType.BEARER, active.getTokenType());
    expect(user, active.getUserInfo().getUserId());
    check(active.getAud().contains("storefront"), "the audience");
    check(active.getExp() > Instant.now().getEpochSecond(), "the expiry lies ahead");
    expect(URI.create(environment("GATEPOST_ISSUER")), active.getIss());

    var second =
        app.generateTokens(
            APIGenerateTokensRequest.newBuilder()
                .grantType("refresh_token")
                .refreshToken(first.getRefreshToken())
                .build());
    check(!second.getRefreshToken().equals(first.getRefreshToken()), "refresh tokens are replaced");
    var revocation = app.revokeToken(APIRevokeTokenRequest.newBuilder().token(second.getRefreshToken()).build());
    check(!revocation.getMessage().isEmpty(), "a confirmation");
    for (var pair : List.of(first, second)) {
      var inactive = api.introspectToken(asking(pair));
      expect(false, inactive.getActive());
      expect(null, inactive.getSub());
      expect(null, inactive.getExp());
    }
  }

  private static void sendNotification(String user) throws Exception {
    var caller = "Bearer " + tokensOf(user).getAccessToken();
    var devices = new DevicesApi(push(caller));
    var history = new HistoryApi(push(caller));
    var device = "device-" + user;
    devices.savePushToken(
        APISavePushTokenRequest.newBuilder()
            .pushToken(new PushToken().token(device).expiration("2035-01-20T12:00:00Z"))
            .barrierUserUtcOffset("+05:45")
            .build());
    expect(true, history.getNotificationsSummary(APIGetNotificationsSummaryRequest.newBuilder().build()).getViewed());

    var operator = "Bearer " + operatorToken();
    var notification =
        new PushNotification().title("Hello " + user).message("How are you?").addUtcOffsetsItem(345);
    var key = UUID.randomUUID().toString();
    var request =
        APISendPushNotificationRequest.newBuilder()
            .pushNotification(notification)
            .idempotencyKey(key)
            .build();
    var sending = new SendingApi(push(operator));
    var sent = sending.sendPushNotificationWithHttpInfo(request);
    expect(204, sent.getStatusCode());
    var again = sending.sendPushNotificationWithHttpInfo(request);
    var id = sent.getHeaders().get("notification-id").get(0);
    expect(List.of(id), again.getHeaders().get("notification-id"));
    awaitCompletion(new OperationApi(push(operator)), UUID.fromString(id));

    expect(false, history.getNotificationsSummary(APIGetNotificationsSummaryRequest.newBuilder().build()).getViewed());
    var page = 
        history.getNotificationsHistory(
            APIGetNotificationsHistoryRequest.newBuilder()
                .markViewed(true)
                .sort(List.of("sendAt,desc", "id"))
                .build());
    expect(1L, page.getTotalElements());
    var entry = page.getContent().get(0);
    expect(user, entry.getUserId());
    expect(false, entry.getViewed());
    expect("Hello " + user, entry.getNotification().getTitle());
    expect(null, entry.getNotification().getImage());
    var age = Duration.between(entry.getSendAt(), OffsetDateTime.now());
    check(age.abs().toMinutes() < 10, "sent just now: " + entry.getSendAt());
    expect(true, history.getNotificationsSummary(APIGetNotificationsSummaryRequest.newBuilder().build()).getViewed());
    sendToUser(user, sending, history);
    devices.deletePushToken(
        APIDeletePushTokenRequest.newBuilder()
            .pushTokenReference(new PushTokenReference().token(device))
            .build());
  }

  /** Sends to one user, with data. */
  private static void sendToUser(String user, SendingApi sending, HistoryApi history) throws Exception {
    var text = new NotificationText().title("On its way").message("It comes tomorrow.");
    var content =
        new NotificationTexts()
            .putTextsItem("en", text)
            .link("https://shop.example.com/orders/4711")
            .putDataItem("orderId", "4711");
    var creation = new NotificationCreation().audience(new Audience().addUsersItem(user)).content(content);
    var request = APICreateNotificationRequest.newBuilder().notificationCreation(creation).build();
    var created = sending.createNotification(request);
    expect(List.of(), created.getWarnings());
    var page = history.getNotificationsHistory(APIGetNotificationsHistoryRequest.newBuilder().build());
    var entry = page.getContent().get(0);
    expect(created.getId(), entry.getId());
    expect("On its way", entry.getNotification().getTitle());
    expect(content.getLink(), entry.getLink());
    expect(content.getData(), entry.getData());
  }

  private static void awaitCompletion(OperationApi operation, UUID id) throws Exception {
    var deadline = Instant.now().plusSeconds(60);
    for (; ; ) {
      var progress = operation.getNotification(APIGetNotificationRequest.newBuilder().id(id).build());
      if (progress.getState() == NotificationState.COMPLETED) {
        check(progress.getSent() >= 1, "somebody was sent something");
        return;
      }
      check(Instant.now().isBefore(deadline), "the notification is still " + progress.getState());
      Thread.sleep(100);
    }
  }

  private static APIIntrospectTokenRequest asking(TokenPair pair) {
    return APIIntrospectTokenRequest.newBuilder().token(pair.getAccessToken()).build();
  }

  private static TokenPair tokensOf(String user) throws Exception {
    return new OAuthApi(auth(BACKEND))
        .generateTokens(APIGenerateTokensRequest.newBuilder().grantType("auth").authId(user).build());
  }

  private static String operatorToken() throws Exception {
    var operator = createIdentity();
    var password = "correct horse " + operator;
    new IdentitiesApi(auth(INTERNAL))
        .setIdentityPassword(
            APISetIdentityPasswordRequest.newBuilder()
                .id(operator)
                .identityPassword(new IdentityPassword().password(password))
                .build());
    return new OAuthApi(auth(BACKOFFICE))
        .generateTokens(
            APIGenerateTokensRequest.newBuilder()
                .grantType("password")
                .username(operator)
                .password(password)
                .build())
        .getAccessToken();
  }

  private static gatepost.auth.ApiClient auth(String authorization) {
    var client = new gatepost.auth.ApiClient();
    client.updateBaseUri(environment("GATEPOST_AUTH_URL"));
    client.setRequestInterceptor(request -> request.header("Authorization", authorization));
    return client;
  }

  private static gatepost.push.ApiClient push(String authorization) {
    var client = new gatepost.push.ApiClient();
    client.updateBaseUri(environment("GATEPOST_PUSH_URL"));
    client.setRequestInterceptor(request -> request.header("Authorization", authorization));
    return client;
  }

  private static String basic(String client, String secretName) {
    var credentials = (client + ":" + environment(secretName)).getBytes(StandardCharsets.UTF_8);
    return "Basic " + Base64.getEncoder().encodeToString(credentials);
  }

  private static String environment(String name) {
    return Objects.requireNonNull(System.getenv(name), name + " is not set");
  }

  private static void expect(Object expected, Object actual) {
    check(Objects.equals(expected, actual), "expected " + expected + ", got " + actual);
  }

  private static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }
}
