import { defineConfig } from "vite";

// `npm run dev` shows what `rowlock serve` has to say, at its usual address or another one.
const server = process.env["ROWLOCK_SERVER"] ?? "http://127.0.0.1:8765";

export default defineConfig({
  // Beside the page, wherever that is: it may be served below any prefix.
  base: "./",
  build: {
    outDir: ".build",
    target: "es2022",
    modulePreload: { polyfill: false },
    // A file in the page's own text would be inline, which its policy forbids.
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 400,
  },
  server: { proxy: { "/v1": server, "/openapi.json": server, "/docs": server } },
});
