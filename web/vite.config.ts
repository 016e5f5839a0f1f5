import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The page is served by `inferno serve` from inside the package. Its files are named by what they
// contain, so that a browser may keep them for ever.
export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/inferno/server/static",
    emptyOutDir: true,
    modulePreload: false,
    license: { fileName: "licenses.md" }, // of what is bundled, which has to go with it
  },
  server: {
    proxy: Object.fromEntries(
      ["/v1", "/app", "/health", "/props"].map((path) => [path, "http://127.0.0.1:8080"]),
    ),
  },
  test: {
    environment: "jsdom",
    include: ["tests/**/*.test.{ts,tsx}"],
    setupFiles: ["tests/browser.ts"],
    restoreMocks: true,
  },
});
