/** A client of each of gatepost's documents. */
const { GATEPOST_AUTH_URL, GATEPOST_PUSH_URL } = process.env;

export default Object.entries({ auth: GATEPOST_AUTH_URL, push: GATEPOST_PUSH_URL }).map(([name, url]) => ({
  input: `${url}/openapi.yaml`,
  // As `module: NodeNext` wants it.
  output: { path: `generated/${name}`, importFileExtension: ".js" },
}));
