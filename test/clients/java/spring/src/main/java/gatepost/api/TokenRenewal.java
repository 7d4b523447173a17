package gatepost.api;

import java.time.Instant;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.ApplicationArguments;
import org.springframework.boot.ApplicationRunner;
import org.springframework.context.annotation.Profile;
import org.springframework.security.oauth2.client.endpoint.OAuth2RefreshTokenGrantRequest;
import org.springframework.security.oauth2.client.endpoint.RestClientRefreshTokenTokenResponseClient;
import org.springframework.security.oauth2.client.registration.ClientRegistrationRepository;
import org.springframework.security.oauth2.core.OAuth2AccessToken;
import org.springframework.security.oauth2.core.OAuth2RefreshToken;
import org.springframework.stereotype.Component;

/** Renews tokens with Spring's OAuth client, which finds the endpoints by the issuer alone. */
@Component
@Profile("client")
class TokenRenewal implements ApplicationRunner {
  private final ClientRegistrationRepository clients;
  private final String refreshToken;

  TokenRenewal(ClientRegistrationRepository clients, @Value("${REFRESH_TOKEN}") String refreshToken) {
    this.clients = clients;
    this.refreshToken = refreshToken;
  }

  @Override
  public void run(ApplicationArguments arguments) {
    var longAgo = Instant.EPOCH;
    var expired =
        new OAuth2AccessToken(OAuth2AccessToken.TokenType.BEARER, "expired", longAgo, longAgo.plusSeconds(900));
    var renewed =
        new RestClientRefreshTokenTokenResponseClient()
            .getTokenResponse(
                new OAuth2RefreshTokenGrantRequest(
                    clients.findByRegistrationId("gatepost"),
                    expired,
                    new OAuth2RefreshToken(refreshToken, longAgo)));
    System.out.println("renewed " + renewed.getAccessToken().getTokenValue());
  }
}
