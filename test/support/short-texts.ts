/** Every text of up to `longest` of these pieces, each once if no piece begins with another one. */
export function* shortTexts(pieces: readonly string[], longest: number, begun = ""): Generator<string> {
  yield begun;
  if (longest === 0) return;
  for (const piece of pieces) yield* shortTexts(pieces, longest - 1, begun + piece);
}
