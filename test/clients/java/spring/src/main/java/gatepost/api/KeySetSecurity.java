package gatepost.api;

import static org.springframework.security.config.Customizer.withDefaults;

import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Profile;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.oauth2.core.OAuth2Error;
import org.springframework.security.oauth2.core.OAuth2TokenValidatorResult;
import org.springframework.security.oauth2.jwt.Jwt;
import org.springframework.security.oauth2.jwt.JwtDecoder;
import org.springframework.security.oauth2.jwt.JwtValidators;
import org.springframework.security.oauth2.jwt.NimbusJwtDecoder;
import org.springframework.security.oauth2.server.resource.web.authentication.BearerTokenAuthenticationFilter;
import org.springframework.security.web.SecurityFilterChain;

/** Local: by the key set, which is fetched now and then. */
@Configuration
@Profile("key-set")
class KeySetSecurity {
  @Bean
  SecurityFilterChain security(HttpSecurity http) throws Exception {
    return http.authorizeHttpRequests(requests -> requests.anyRequest().hasAuthority("SCOPE_orders"))
        .oauth2ResourceServer(server -> server.jwt(withDefaults()))
        .addFilterBefore(new AuthIsAway(), BearerTokenAuthenticationFilter.class)
        .build();
  }

  /** Spring's own decoder takes tokens of the type JWT and refuses at+jwt (RFC 9068); this one is the reverse. */
  @Bean
  JwtDecoder decoder(
      @Value("${gatepost.auth-url}") String authUrl,
      @Value("${gatepost.issuer}") String issuer,
      @Value("${gatepost.audience}") String audience) {
    var decoder = NimbusJwtDecoder.withJwkSetUri(authUrl + "/v1/jwks").validateType(false).build();
    decoder.setJwtValidator(
        JwtValidators.createAtJwtValidator()
            .issuer(issuer)
            .audience(audience)
            .validators(all -> all.put("client_id", KeySetSecurity::validateUser))
            .build());
    return decoder;
  }

  /** A client that acts for no user has its own id as the subject. */
  private static OAuth2TokenValidatorResult validateUser(Jwt token) {
    var client = token.getClaimAsString("client_id");
    return client != null && token.getSubject() != null && !client.equals(token.getSubject())
        ? OAuth2TokenValidatorResult.success()
        : OAuth2TokenValidatorResult.failure(new OAuth2Error("invalid_token", "It is of no user", null));
  }
}
