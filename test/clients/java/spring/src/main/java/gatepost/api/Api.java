package gatepost.api;

import java.security.Principal;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** An API that tells its callers who they are. */
@SpringBootApplication
@RestController
public class Api {
  public static void main(String[] args) {
    var context = SpringApplication.run(Api.class, args);
    System.out.println("http://127.0.0.1:" + context.getEnvironment().getProperty("local.server.port"));
  }

  @GetMapping("/")
  String user(Principal user) {
    return user.getName();
  }
}
