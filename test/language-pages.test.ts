/** The pages that connect a language: each goes on having its sections, and in them its programs and commands. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { root } from "./support/program.ts";

/** Sections with what is in their blocks of code, in order: a file that is run, without its folder; or commands, `sh`. */
const outlines: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  "docs/clients/go.md": {
    Generate: ["sh"],
    "Call auth and push": ["connect/main.go", "sh"],
    "Or over gRPC": ["buf.gen.yaml", "sh", "introspect/main.go", "sh"],
  },
  "docs/clients/java.md": {
    Generate: ["sh", "native/pom.xml"],
    "Call auth and push": ["native/src/gatepost/Connect.java", "sh"],
    "Or over gRPC": ["grpc/src/gatepost/Introspect.java", "sh"],
  },
  "docs/clients/kotlin.md": {
    Generate: ["sh", "pom.xml"],
    "Call auth and push": ["src/Connect.kt", "sh"],
  },
  "docs/clients/python.md": {
    Generate: ["sh"],
    "Call auth and push": ["connect.py", "sh"],
    "Models only": ["sh", "connect_models.py"],
    "Or over gRPC": ["sh", "introspect_token.py", "sh"],
  },
  "docs/clients/rust.md": {
    Generate: ["sh", "sh", "client/Cargo.toml"],
    "Call auth and push": ["client/examples/connect.rs", "sh"],
    "Or over gRPC": [
      ...[
        "introspect/Cargo.toml",
        "introspect/Cargo.toml",
        "introspect/build.rs",
        "introspect/src/main.rs",
        "sh",
      ],
    ],
  },
  "docs/clients/typescript.md": {
    Install: ["sh", "sh"],
    "Call auth and push": ["packages/connect.ts", "sh"],
    "Sign a user in from a page": ["packages/sign-in.ts", "sh"],
    "Or over Connect": ["sh", "packages/introspect.ts", "sh"],
    "Or a generator": [],
  },
  "docs/auth/protect-your-api/go.md": {
    "Strict, by introspection": ["protect/introspection.go"],
    "Local, by the key set": ["protect/keyset.go"],
    "Before your handlers": ["protect/protect.go", "protect/main.go"],
  },
  "docs/auth/protect-your-api/java.md": {
    "": ["spring/pom.xml", "spring/src/main/resources/application.properties"],
    "Strict, by introspection": ["spring/src/main/java/gatepost/api/IntrospectionSecurity.java"],
    "Local, by the key set": [
      "spring/src/main/java/gatepost/api/KeySetSecurity.java",
      "spring/src/main/resources/application-issuer-uri.properties",
    ],
    "While auth is away": ["spring/src/main/java/gatepost/api/AuthIsAway.java"],
    "Tokens for calls of your own": ["spring/src/main/resources/application-client.properties"],
  },
  "docs/auth/protect-your-api/node.md": {
    Install: ["sh"],
    "Strict, by introspection": ["packages/api.ts", "sh"],
    "Local, by the key set": ["apis/main.ts"],
    "In your framework": [
      ...["apis/fastify.ts", "apis/hono.ts", "apis/node-http.ts", "apis/connect.ts", "apis/grpc-js.ts"],
      "apis/routes.ts",
    ],
    "For pages of another origin": ["apis/routes.ts"],
    "What callers get": [],
  },
  "docs/auth/protect-your-api/python.md": {
    "Strict, by introspection": ["resource-server/introspection.py"],
    "Local, by the key set": ["resource-server/key_set.py"],
    "Before your handlers": ["resource-server/protect.py", "resource-server/main.py"],
  },
};

/** As in {@link outlines}; the name of a section without a heading is empty. */
function outlineOf(page: string): Record<string, string[]> {
  const text = readFileSync(join(root, page), "utf8");
  const marks = text.matchAll(/^## (?<heading>.+)$|^```(?<info>.+)\n[\s\S]*?^```$/gm);
  let section = "";
  const outline: Record<string, string[]> = {};
  for (const { groups: { heading, info = "" } = {} } of marks) {
    section = heading ?? section;
    outline[section] ??= [];
    const file = info.replace(/^.* file=test\/(clients|packages)\/[^/]+\//, "");
    if (heading === undefined) outline[section]?.push(file);
  }
  return outline;
}

it.each(Object.entries(outlines))("%s has all of its sections", (page, outline) => {
  expect(outlineOf(page)).toEqual(outline);
});

it("every page of a language is listed", () => {
  const pages = globSync(["docs/clients/*.md", "docs/auth/protect-your-api/*.md"], { cwd: root });
  const languages = pages.filter((page) => page !== "docs/clients/README.md");
  expect(languages.sort()).toEqual(Object.keys(outlines).sort());
});
