import { generatedPrefix, secretMatching, stricterInProduction } from "./kinds.ts";

/** The key of the platform security interface: the service that is asked and those that ask have the same. */
export const platformApiKey = stricterInProduction(
  secretMatching("16 to 256 visible ASCII characters", /^[\x21-\x7e]{16,256}$/),
  (key) => (key.startsWith(generatedPrefix) ? "must not be a key made by development mode" : undefined),
);
