package gatepost;

import com.atlassian.oai.validator.OpenApiInteractionValidator;
import com.atlassian.oai.validator.model.Request;
import com.atlassian.oai.validator.model.SimpleRequest;
import com.atlassian.oai.validator.model.SimpleResponse;
import com.atlassian.oai.validator.report.ValidationReport;
import io.swagger.parser.OpenAPIParser;
import io.swagger.v3.parser.core.models.ParseOptions;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;

/** Reads both documents in both formats, and judges requests and the server's responses by one. */
public final class Documents {
  private Documents() {}

  public static void main(String[] args) throws Exception {
    var folder = Path.of(environment("DOCUMENTS"));
    for (var name : List.of("auth.yaml", "auth.json", "push.yaml", "push.json")) {
      parse(folder.resolve(name));
    }
    judge(folder.resolve("auth.yaml"));
    // The other document has no operation that needs less than a device; that it is read is what counts.
    OpenApiInteractionValidator.createForSpecificationUrl(folder.resolve("push.yaml").toString()).build();
  }

  private static void parse(Path document) {
    var options = new ParseOptions();
    options.setResolve(true);
    var result = new OpenAPIParser().readLocation(document.toString(), null, options);
    check(result.getMessages().isEmpty(), document.getFileName() + ": " + result.getMessages());
    check(result.getOpenAPI().getPaths().size() > 5, document.getFileName() + " has too few paths");
  }

  private static void judge(Path document) throws Exception {
    var validator = OpenApiInteractionValidator.createForSpecificationUrl(document.toString()).build();
    var phone = "+1202" + ThreadLocalRandom.current().nextInt(2_000_000, 10_000_000);
    var json = "{\"id\": \"u-%s\", \"phone\": \"%s\"}".formatted(UUID.randomUUID(), phone);
    expectGood(judge(validator, "/v1/identities", "application/json", json, 200));
    expectGood(judge(validator, "/v1/identities", "application/json", json, 409));
    expectGood(judge(validator, "/oauth2/v1/introspect", "application/x-www-form-urlencoded", "token=garbled", 200));
    var withoutPhone = judge(validator, "/v1/identities", "application/json", "{\"id\": \"u-1\"}", 400);
    check(withoutPhone.hasErrors(), "a request without a phone number is found bad");
  }

  /** Sends the request, and has it judged together with the response. */
  private static ValidationReport judge(
      OpenApiInteractionValidator validator, String path, String type, String body, int status)
      throws Exception {
    var credentials = "internal:" + environment("GATEPOST_INTERNAL_SECRET");
    var basic = "Basic " + Base64.getEncoder().encodeToString(credentials.getBytes(StandardCharsets.UTF_8));
    var request =
        HttpRequest.newBuilder(URI.create(environment("GATEPOST_AUTH_URL") + path))
            .header("Authorization", basic)
            .header("Content-Type", type)
            .POST(HttpRequest.BodyPublishers.ofString(body))
            .build();
    var received = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    check(received.statusCode() == status, path + " was answered with " + received.statusCode());
    var response = SimpleResponse.Builder.status(status).withBody(received.body());
    received.headers().map().forEach(response::withHeader);
    var base = URI.create(environment("GATEPOST_AUTH_URL")).getPath();
    Request sent =
        SimpleRequest.Builder.post(base + path)
            .withHeader("Authorization", basic)
            .withContentType(type)
            .withBody(body)
            .build();
    return validator.validate(sent, response.build());
  }

  private static void expectGood(ValidationReport report) {
    check(!report.hasErrors(), report.getMessages().toString());
  }

  private static String environment(String name) {
    var value = System.getenv(name);
    check(value != null, name + " is not set");
    return value;
  }

  private static void check(boolean holds, String what) {
    if (!holds) throw new AssertionError(what);
  }
}
