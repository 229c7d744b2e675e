/**
 * One spelling for each number that JSON text can hold, without ever making two numbers one.
 * A number that a double holds to the digit gets the spelling of RFC 8785 (that of ECMAScript): 1.0, 1e0 and 1 are `1`.
 * Any other, such as an integer beyond 2^53, keeps the text it came in. Two spellings of such a number stay two: that costs
 * a cache hit, where rounding would give one caller the answer to another question.
 */

/** So many digits always survive a double. */
const exactDigits = 15;
/** Below it a double has fewer of them. */
const smallestExact = 1e-300;

/** The canonical spelling; `text` is a number by the grammar of JSON. */
export function canonicalNumber(text: string): string {
  if (text.length <= exactDigits && isPlainInteger(text)) return text === '-0' ? '0' : text;
  const value = Number(text);
  if (!Number.isFinite(value)) return text;
  // Negative zero is printed as 0.
  const printed = String(value);
  // A number this short, and not so small that digits get lost, is the only one of its length that makes this double.
  if (text.length <= exactDigits && Math.abs(value) > smallestExact) return printed;
  return printed === text || decimalOf(printed) === decimalOf(text) ? printed : text;
}

/** Longer texts are not compared as numbers: no number in practical use is that long. */
const comparedCharsMax = 400;
const jsonNumber = /^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,15})?$/;

/** Whether two texts are the same number by the grammar of JSON, to the last digit: 42, 42.0 and 4.2e1 are. */
export function isSameNumber(one: string, other: string): boolean {
  if (one.length > comparedCharsMax || other.length > comparedCharsMax) return false;
  return jsonNumber.test(one) && jsonNumber.test(other) && decimalOf(one) === decimalOf(other);
}

function isPlainInteger(text: string): boolean {
  for (let i = text.charCodeAt(0) === 0x2d ? 1 : 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code < 0x30 || code > 0x39) return false;
  }
  return true;
}

/** The exact value as sign, digits without zeros at either end, and power of ten. */
function decimalOf(text: string): string {
  const [mantissa = '', power = '0'] = text.toLowerCase().split('e');
  const sign = mantissa.startsWith('-') ? '-' : '';
  const [whole = '', fraction = ''] = mantissa.slice(sign.length).split('.');
  const all = withoutLeadingZeros(whole + fraction);
  let end = all.length;
  while (end > 0 && all.charCodeAt(end - 1) === 0x30) end--;
  if (end === 0) return '0';
  return `${sign}${all.slice(0, end)}e${Number(power) - fraction.length + all.length - end}`;
}

function withoutLeadingZeros(digits: string): string {
  let start = 0;
  while (digits.charCodeAt(start) === 0x30) start++;
  return digits.slice(start);
}
