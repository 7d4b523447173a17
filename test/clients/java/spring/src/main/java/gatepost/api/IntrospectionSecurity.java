package gatepost.api;

import static org.springframework.security.config.Customizer.withDefaults;

import java.time.Duration;
import java.util.List;
import java.util.Objects;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Profile;
import org.springframework.http.client.SimpleClientHttpRequestFactory;
import org.springframework.http.client.support.BasicAuthenticationInterceptor;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.oauth2.core.OAuth2TokenIntrospectionClaimNames;
import org.springframework.security.oauth2.server.resource.introspection.BadOpaqueTokenException;
import org.springframework.security.oauth2.server.resource.introspection.OpaqueTokenIntrospector;
import org.springframework.security.oauth2.server.resource.introspection.SpringOpaqueTokenIntrospector;
import org.springframework.security.oauth2.server.resource.web.authentication.BearerTokenAuthenticationFilter;
import org.springframework.security.web.SecurityFilterChain;
import org.springframework.web.client.RestTemplate;

/** Strict: auth is asked about each token, anew for each request, as a cached response knows of no revocation. */
@Configuration
@Profile("introspection")
class IntrospectionSecurity {
  @Bean
  SecurityFilterChain security(HttpSecurity http) throws Exception {
    return http.authorizeHttpRequests(requests -> requests.anyRequest().hasAuthority("SCOPE_orders"))
        .oauth2ResourceServer(server -> server.opaqueToken(withDefaults()))
        .addFilterBefore(new AuthIsAway(), BearerTokenAuthenticationFilter.class)
        .build();
  }

  @Bean
  OpaqueTokenIntrospector introspector(
      @Value("${gatepost.auth-url}") String authUrl,
      @Value("${gatepost.client-id}") String clientId,
      @Value("${gatepost.client-secret}") String clientSecret,
      @Value("${gatepost.audience}") String audience) {
    var requests = new SimpleClientHttpRequestFactory();
    requests.setConnectTimeout(Duration.ofSeconds(2));
    requests.setReadTimeout(Duration.ofSeconds(2));
    var client = new RestTemplate(requests);
    client.getInterceptors().add(new BasicAuthenticationInterceptor(clientId, clientSecret));
    var introspector =
        new SpringOpaqueTokenIntrospector(authUrl + "/oauth2/v1/introspect", client);
    return token -> {
      var principal = introspector.introspect(token);
      List<String> audiences = principal.getAttribute(OAuth2TokenIntrospectionClaimNames.AUD);
      // A client that acts for no user has its own id as the subject.
      boolean isUser =
          !Objects.equals(principal.getAttribute("sub"), principal.getAttribute("client_id"));
      if (audiences != null && audiences.contains(audience) && isUser) return principal;
      throw new BadOpaqueTokenException("The token is meant for another API, or is of no user");
    };
  }
}
