import { defineConfig } from "@kubb/core";
import { pluginClient } from "@kubb/plugin-client";
import { pluginOas } from "@kubb/plugin-oas";
import { pluginTs } from "@kubb/plugin-ts";

const documents = process.env["DOCUMENTS"] ?? "";

/** With axios, which is kubb's default; `full` returns status and headers beside the data. */
const generate = (name: string) =>
  defineConfig({
    name,
    input: { path: `${documents}/${name}.yaml` },
    output: { path: `generated/${name}`, clean: true, format: false, lint: false },
    plugins: [
      pluginOas({ generators: [] }),
      pluginTs({ output: { path: "types" } }),
      pluginClient({
        output: { path: "clients" },
        bundle: true,
        dataReturnType: "full",
        paramsType: "object",
      }),
    ],
  });

export default [generate("auth"), generate("push")];
