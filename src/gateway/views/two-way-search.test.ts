import fc from 'fast-check';
import { test } from 'vitest';
import { SearchText } from './uri-templates.js';

const codesOf = (text: string) => Uint16Array.from(text, (char) => char.charCodeAt(0));

/** Few letters, so that texts repeat themselves in every way. */
const text = (min: number, max: number) =>
  fc
    .array(fc.constantFrom('a', 'a', 'a', 'b', 'b', 'ä'), { minLength: min, maxLength: max })
    .map((all) => all.join(''));

// The seed of a failure is printed by fast-check.
test('E9 a text is found where indexOf finds it, in at most two comparisons per code', () => {
  fc.assert(
    fc.property(text(1, 9), text(0, 40), fc.nat(5), fc.nat(45), (wanted, whole, from, end) => {
      const codes = codesOf(whole);
      const limit = Math.min(end, codes.length);
      const meter = { steps: 0 };
      const searched = new SearchText(codesOf(`x${wanted}y`), 1, 1 + wanted.length, -1);
      const found = searched.find(codes, from, limit, meter);
      const isLinear = meter.steps <= 2 * Math.max(0, limit - from);
      const known = whole.slice(0, limit);
      const isAt = from <= limit && known.startsWith(wanted, from);
      return isLinear && found === known.indexOf(wanted, from) && searched.isAt(codes, from, limit, meter) === isAt;
    }),
    { numRuns: 2_000 },
  );
});
