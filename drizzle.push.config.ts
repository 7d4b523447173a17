import { defineConfig } from "drizzle-kit";

export default defineConfig({ dialect: "postgresql", schema: "./src/push/schema.ts", out: "./drizzle/push" });
