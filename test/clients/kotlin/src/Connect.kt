/** Creates a user, gets tokens, asks about one, and registers a device. */
package gatepost

import gatepost.auth.apis.IdentitiesApi
import gatepost.auth.apis.OAuthApi
import gatepost.auth.models.IdentityCreation
import gatepost.push.apis.DevicesApi
import gatepost.push.models.PushToken
import okhttp3.Credentials
import okhttp3.OkHttpClient

private val authApi = System.getenv("GATEPOST_AUTH_URL")
private val pushApi = System.getenv("GATEPOST_PUSH_URL")
private val internal = callingWith(Credentials.basic("internal", System.getenv("GATEPOST_INTERNAL_SECRET")))
private val app = callingWith(Credentials.basic("backend", System.getenv("GATEPOST_BACKEND_SECRET")))
private val api = callingWith(Credentials.basic("api", System.getenv("GATEPOST_API_SECRET")))

fun main() {
  val now = System.currentTimeMillis()
  val id = "u-$now"
  IdentitiesApi(authApi, internal).createIdentity(IdentityCreation(id, "+1202${2_000_000 + now % 7_000_000}"))
  val tokens = OAuthApi(authApi, app).generateTokens("auth", authId = id)
  val introspection = OAuthApi(authApi, api).introspectToken(tokens.accessToken)
  println(if (introspection.active) "active: ${introspection.sub}" else "not active")

  val device = PushToken("device-$now", "2035-01-01T00:00:00Z")
  DevicesApi(pushApi, callingWith("Bearer ${tokens.accessToken}")).savePushToken(device, "+05:45")
}

private fun callingWith(authorization: String): OkHttpClient =
  OkHttpClient.Builder()
    .addInterceptor { it.proceed(it.request().newBuilder().header("Authorization", authorization).build()) }
    .build()
