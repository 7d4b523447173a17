import { registerHooks } from "node:module";

const inDrizzle = /\/node_modules\/drizzle-orm\/(?!node_modules\/)/;

/**
 * Resolves the imports between the modules of drizzle-orm. To find out that a module is an ES module, Node would
 * parse drizzle-orm's package.json for each of them: 180 KB, a hundred times, a third of the time that the program
 * takes to start. Call it before anything imports drizzle-orm.
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
