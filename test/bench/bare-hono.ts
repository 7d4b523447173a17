/** The ceiling for HTTP: a bare Hono server that reads a form and answers a body of the product's size. */
import { serve } from "@hono/node-server";
import { Hono } from "hono";

const body = process.argv[3] ?? "{}";
const app = new Hono();
app.post("/api/auth/oauth2/v1/introspect", async (c) => {
  const token = new URLSearchParams(await c.req.text()).get("token");
  return token ? new Response(body, { headers: { "Content-Type": "application/json" } }) : c.body(null, 400);
});
serve({ fetch: app.fetch, port: Number(process.argv[2]), hostname: "127.0.0.1" }, () =>
  process.stdout.write("ready\n"),
);
