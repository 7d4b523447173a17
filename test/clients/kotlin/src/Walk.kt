/** Create, token, introspect, refresh, revoke; device, send, history. Ends with an exception where a step fails. */
package gatepost

import gatepost.auth.apis.IdentitiesApi
import gatepost.auth.apis.OAuthApi
import gatepost.auth.infrastructure.ClientException
import gatepost.auth.models.AuthenticationType
import gatepost.auth.models.IdentityCreation
import gatepost.auth.models.IdentityPassword
import gatepost.auth.models.TokenPair
import gatepost.auth.models.TokenType
import gatepost.push.apis.DevicesApi
import gatepost.push.apis.HistoryApi
import gatepost.push.apis.OperationApi
import gatepost.push.apis.SendingApi
import gatepost.push.infrastructure.ApiResponse
import gatepost.push.models.Audience
import gatepost.push.models.NotificationCreation
import gatepost.push.models.NotificationState
import gatepost.push.models.NotificationText
import gatepost.push.models.NotificationTexts
import gatepost.push.models.PushNotification
import gatepost.push.models.PushToken
import gatepost.push.models.PushTokenReference
import java.net.URI
import java.time.Duration
import java.time.Instant
import java.time.OffsetDateTime
import java.util.UUID
import kotlin.random.Random
import okhttp3.Credentials
import okhttp3.OkHttpClient

private val authUrl = environment("GATEPOST_AUTH_URL")
private val pushUrl = environment("GATEPOST_PUSH_URL")
private val internal = clientOf(Credentials.basic("internal", environment("GATEPOST_INTERNAL_SECRET")))
private val api = clientOf(Credentials.basic("api", environment("GATEPOST_API_SECRET")))
private val backend = clientOf(Credentials.basic("backend", environment("GATEPOST_BACKEND_SECRET")))
private val backoffice = clientOf(Credentials.basic("backoffice", environment("GATEPOST_BACKOFFICE_SECRET")))

fun main() {
  val user = createIdentity()
  useTokens(user)
  sendNotification(user)
}

private fun createIdentity(): String {
  val id = "u-${UUID.randomUUID()}"
  val phone = "+1202${Random.nextInt(2_000_000, 10_000_000)}"
  val identities = IdentitiesApi(authUrl, internal)
  val creation = IdentityCreation(id, phone, email = "$id@example.com", metadata = mapOf("language" to "en"))
  val created = identities.createIdentity(creation)
  expect(id, created.id)
  expect(phone, created.phone)
  expect(mapOf("language" to "en"), created.metadata)
  expect(AuthenticationType.PHONE_OTP, created.authenticationTypes.single())
  expect(created, identities.getIdentity(id))
  try {
    identities.createIdentity(creation)
    throw AssertionError("an identity was created twice")
  } catch (refused: ClientException) {
    expect(409, refused.statusCode)
  }
  return id
}

private fun useTokens(user: String) {
  val app = OAuthApi(authUrl, backend)
  val introspector = OAuthApi(authUrl, api)
  val first = tokensOf(user)
  expect(TokenType.Bearer, first.tokenType)
  check(first.expiresIn > 0) { "it lives" }
  val active = introspector.introspectToken(first.accessToken)
  expect(true, active.active)
  expect(user, active.sub)
  expect("backend", active.clientId)
  expect(TokenType.Bearer, active.tokenType)
  expect(user, active.userInfo?.userId)
  expect(URI(environment("GATEPOST_ISSUER")), active.iss)
  check("storefront" in active.aud.orEmpty()) { "the audience" }
  check((active.exp ?: 0) > Instant.now().epochSecond) { "the expiry lies ahead" }

  val second = app.generateTokens("refresh_token", refreshToken = first.refreshToken)
  check(second.refreshToken != first.refreshToken) { "refresh tokens are replaced" }
  check(app.revokeToken(second.refreshToken).message.isNotEmpty()) { "a confirmation" }
  for (pair in listOf(first, second)) {
    val inactive = introspector.introspectToken(pair.accessToken)
    expect(false, inactive.active)
    expect(null, inactive.sub)
    expect(null, inactive.exp)
  }
}

private fun sendNotification(user: String) {
  val caller = clientOf("Bearer ${tokensOf(user).accessToken}")
  val devices = DevicesApi(pushUrl, caller)
  val history = HistoryApi(pushUrl, caller)
  val device = "device-$user"
  devices.savePushToken(PushToken(device, "2035-01-20T12:00:00Z"), "+05:45")
  expect(true, history.getNotificationsSummary().viewed)

  val operator = clientOf("Bearer ${operatorToken()}")
  val notification = PushNotification("Hello $user", "How are you?", listOf(345))
  val key = UUID.randomUUID().toString()
  val sending = SendingApi(pushUrl, operator)
  val id = notificationId(sending.sendPushNotificationWithHttpInfo(notification, key, null, null))
  expect(id, notificationId(sending.sendPushNotificationWithHttpInfo(notification, key, null, null)))
  awaitCompletion(OperationApi(pushUrl, operator), UUID.fromString(id))

  expect(false, history.getNotificationsSummary().viewed)
  val page = history.getNotificationsHistory(markViewed = true, sort = listOf("sendAt,desc", "id"))
  expect(1L, page.totalElements)
  val entry = page.content.single()
  expect(user, entry.userId)
  expect(false, entry.viewed)
  expect("Hello $user", entry.notification.title)
  expect(null, entry.notification.image)
  val age = Duration.between(entry.sendAt, OffsetDateTime.now())
  check(age.abs().toMinutes() < 10) { "sent just now: ${entry.sendAt}" }
  expect(true, history.getNotificationsSummary().viewed)
  sendToUser(user, sending, history)
  devices.deletePushToken(pushTokenReference = PushTokenReference(device))
}

/** Sends to one user, with data. */
private fun sendToUser(user: String, sending: SendingApi, history: HistoryApi) {
  val text = NotificationText("On its way", "It comes tomorrow.")
  val link = "https://shop.example.com/orders/4711"
  val data = mapOf("orderId" to "4711")
  val content = NotificationTexts(texts = mapOf("en" to text), link = link, `data` = data)
  val created = sending.createNotification(NotificationCreation(Audience(users = listOf(user)), content))
  check(created.warnings.isEmpty()) { "no warnings" }
  val entry = history.getNotificationsHistory().content.first()
  expect(created.id, entry.id)
  expect("On its way", entry.notification.title)
  expect(link, entry.link)
  expect(data, entry.`data`)
}

private fun notificationId(response: ApiResponse<*>): String {
  expect(204, response.statusCode)
  val header = response.headers.entries.single { it.key.equals("Notification-Id", ignoreCase = true) }
  return header.value.single()
}

private fun awaitCompletion(operation: OperationApi, id: UUID) {
  val deadline = Instant.now().plusSeconds(60)
  while (true) {
    val progress = operation.getNotification(id)
    if (progress.state == NotificationState.COMPLETED) {
      check(progress.sent >= 1) { "somebody was sent something" }
      return
    }
    check(Instant.now() < deadline) { "the notification is still ${progress.state}" }
    Thread.sleep(100)
  }
}

private fun tokensOf(user: String): TokenPair = OAuthApi(authUrl, backend).generateTokens("auth", authId = user)

private fun operatorToken(): String {
  val operator = createIdentity()
  val password = "correct horse $operator"
  IdentitiesApi(authUrl, internal).setIdentityPassword(operator, IdentityPassword(password))
  return OAuthApi(authUrl, backoffice)
    .generateTokens("password", username = operator, password = password)
    .accessToken
}

private fun clientOf(authorization: String): OkHttpClient =
  OkHttpClient.Builder()
    .addInterceptor { it.proceed(it.request().newBuilder().header("Authorization", authorization).build()) }
    .build()

private fun environment(name: String): String = checkNotNull(System.getenv(name)) { "$name is not set" }

private fun expect(expected: Any?, actual: Any?) = check(expected == actual) { "expected $expected, got $actual" }
