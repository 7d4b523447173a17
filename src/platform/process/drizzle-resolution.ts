import { registerHooks } from "node:module";

const inDrizzle = /\/node_modules\/drizzle-orm\/(?!node_modules\/)/;

/**
 * Resolves what the modules of drizzle-orm import from each other. Node would read the package.json above each
 * of them to learn that it is an ES module, and would parse all of it each time: 180 KB, a hundred times, a
 * third of the time that the program takes to start. Call it before anything imports drizzle-orm.
 */
export function resolveDrizzleDirectly(): void {
  registerHooks({
    resolve(specifier, context, nextResolve) {
      const { parentURL } = context;
      const isInside = parentURL !== undefined && inDrizzle.test(parentURL);
      if (!isInside || !/^\.{1,2}\/.*\.js$/.test(specifier)) return nextResolve(specifier, context);
      return { url: new URL(specifier, parentURL).href, format: "module", shortCircuit: true };
    },
  });
}
