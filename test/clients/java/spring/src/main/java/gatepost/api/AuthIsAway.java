package gatepost.api;

import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpFilter;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import org.springframework.security.authentication.AuthenticationServiceException;

/** Answers 503 where auth could not be asked, or its key set not be fetched. */
final class AuthIsAway extends HttpFilter {
  private static final long serialVersionUID = 1;

  @Override
  protected void doFilter(HttpServletRequest request, HttpServletResponse response, FilterChain chain)
      throws IOException, ServletException {
    try {
      chain.doFilter(request, response);
    } catch (AuthenticationServiceException authIsAway) {
      response.setHeader("Retry-After", "1");
      response.setStatus(503);
    }
  }
}
