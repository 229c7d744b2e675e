import { describe, expect, test } from 'vitest';
import { argumentsText, missingArguments, writtenArguments } from './arguments.js';
import type { Schema } from './schema-types.js';

const files: Readonly<Record<string, string>> = {
  'note.txt': 'two\nlines é\n',
  'n.json': ' 18446744073709551615\n',
  'list.json': '["a", 9007199254740993]',
};
const read = (file: string): string => files[file] ?? `missing ${file}`;

/** The JSON that is sent, or the parameter and the reason of a refusal. */
async function sent(schema: Schema | undefined, line: readonly string[]): Promise<string> {
  const options = line.filter((word) => word.startsWith('--arg ')).map((word) => word.slice('--arg '.length));
  try {
    const written = writtenArguments(
      line.filter((word) => !word.startsWith('--arg ')),
      options,
      read,
    );
    const missing = schema ? missingArguments(written, schema) : [];
    return missing.length > 0 ? `needs ${missing}` : await argumentsText(written, schema);
  } catch (error) {
    return `refused: ${(error as Error).message}`;
  }
}

const object = (properties: object, more: object = {}): Schema => ({ type: 'object', properties, ...more });

type Case = readonly [line: readonly string[], json: string];
const big = '12345678901234567890';
const max64 = '9223372036854775807';

const cases: Readonly<Record<string, readonly [Schema | undefined, readonly Case[]]>> = {
  text: [
    object({ zip: { type: 'string' }, q: { type: 'string' } }),
    [
      [['zip=01234'], '{"zip":"01234"}'],
      [['--arg zip=01234'], '{"zip":"01234"}'],
      [['zip=true'], '{"zip":"true"}'],
      [['zip=null'], '{"zip":"null"}'],
      [['zip={"a":1}'], '{"zip":"{\\"a\\":1}"}'],
      [['zip='], '{"zip":""}'],
      [['zip=  spaced  '], '{"zip":"  spaced  "}'],
      [['zip==x'], '{"zip":"=x"}'],
      [['q=größe 日本 🎉'], '{"q":"größe 日本 🎉"}'],
      [['q="quoted"'], '{"q":"\\"quoted\\""}'],
      [['q:="json"'], '{"q":"json"}'],
      [['q:=5'], "refused: q: '5' is not a string"],
      [['q:=nope'], "refused: q: 'nope' is not JSON"],
      [['q=@note.txt'], '{"q":"two\\nlines é\\n"}'],
      [['--arg q=@note.txt'], '{"q":"@note.txt"}'],
      [['q:="@note.txt"'], '{"q":"@note.txt"}'],
      [['zip=1', 'q=2'], '{"zip":"1","q":"2"}'],
      [['zip=1', 'zip=2'], 'refused: zip is given twice'],
      [['zip=1', '--arg zip=2'], 'refused: zip is given twice'],
    ],
  ],
  integer: [
    object({ n: { type: 'integer' } }),
    [
      [['n=5'], '{"n":5}'],
      [['n=-5'], '{"n":-5}'],
      [['n=0'], '{"n":0}'],
      [[`n=${max64}`], `{"n":${max64}}`],
      [[`n=${big}`], `{"n":${big}}`],
      [[`--arg n=${big}`], `{"n":${big}}`],
      [[`n:=${big}`], `{"n":${big}}`],
      [['n=@n.json'], '{"n":18446744073709551615}'],
      [['n=01'], "refused: n: '01' is not an integer"],
      [['n=1.5'], "refused: n: '1.5' is not an integer"],
      [['n=+1'], "refused: n: '+1' is not an integer"],
      [['n=five'], "refused: n: 'five' is not an integer"],
      [['n='], "refused: n: '' is not an integer"],
      [['n="5"'], 'refused: n: \'"5"\' is not an integer'],
      [['n:=1.5'], "refused: n: '1.5' is not an integer"],
      [['n:=[1]'], "refused: n: '[1]' is not an integer"],
    ],
  ],
  number: [
    object({ x: { type: 'number' } }),
    [
      [['x=1'], '{"x":1}'],
      [['x=1.50'], '{"x":1.50}'],
      [['x=-0.25e-3'], '{"x":-0.25e-3}'],
      [[`x=${big}.5`], `{"x":${big}.5}`],
      [['x=.5'], "refused: x: '.5' is not a number"],
      [['x=NaN'], "refused: x: 'NaN' is not a number"],
      [['x=1,5'], "refused: x: '1,5' is not a number"],
      [['x=true'], "refused: x: 'true' is not a number"],
    ],
  ],
  boolean: [
    object({ on: { type: 'boolean' } }),
    [
      [['on=true'], '{"on":true}'],
      [['on=false'], '{"on":false}'],
      [['on:=true'], '{"on":true}'],
      [['on=yes'], "refused: on: 'yes' is not a boolean"],
      [['on=1'], "refused: on: '1' is not a boolean"],
      [['on=True'], "refused: on: 'True' is not a boolean"],
    ],
  ],
  array: [
    object({ list: { type: 'array', items: { type: 'string' } } }),
    [
      [['list=["a","b"]'], '{"list":["a","b"]}'],
      [['list:=["a"]'], '{"list":["a"]}'],
      [['list:=[]'], '{"list":[]}'],
      [['list=@list.json'], '{"list":["a", 9007199254740993]}'],
      [['list=a'], "refused: list: 'a' is not an array"],
      [['list=a,b'], "refused: list: 'a,b' is not an array"],
      [['list={"a":1}'], 'refused: list: \'{"a":1}\' is not an array'],
      [['list=[1'], "refused: list: '[1' is not an array"],
    ],
  ],
  object: [
    object({ o: { type: 'object' } }),
    [
      [['o={"a":1}'], '{"o":{"a":1}}'],
      [[`o:={"id":${big}}`], `{"o":{"id":${big}}}`],
      [['o=[]'], "refused: o: '[]' is not an object"],
      [['o=null'], "refused: o: 'null' is not an object"],
      [['o=text'], "refused: o: 'text' is not an object"],
    ],
  ],
  enum: [
    object({ level: { enum: ['low', 'high'] }, count: { enum: [1, 2] } }),
    [
      [['level=low'], '{"level":"low"}'],
      [['level:="high"'], '{"level":"high"}'],
      [['level=hihg'], "refused: level: 'hihg' is not allowed"],
      [['level=LOW'], "refused: level: 'LOW' is not allowed"],
      [['count=2'], '{"count":2}'],
      [['count=3'], "refused: count: '3' is not allowed"],
      [['count=two'], "refused: count: 'two' is not an integer"],
    ],
  ],
  union: [
    object({
      id: { type: ['string', 'integer'] },
      at: { anyOf: [{ type: 'integer' }, { type: 'null' }] },
      either: { oneOf: [{ type: 'boolean' }, { const: 'auto' }] },
      any: { anyOf: [{ type: 'integer' }, {}] },
    }),
    [
      [['id=007'], '{"id":"007"}'],
      [['id:=7'], '{"id":7}'],
      [['id:=true'], "refused: id: 'true' is not a string or an integer"],
      [['at=5'], '{"at":5}'],
      [['at=null'], '{"at":null}'],
      [['at=soon'], "refused: at: 'soon' is not an integer or null"],
      [['either=auto'], '{"either":"auto"}'],
      [['either:=true'], '{"either":true}'],
      [['any=word'], '{"any":"word"}'],
      [['any=12'], '{"any":12}'],
    ],
  ],
  reference: [
    {
      ...object({ where: { $ref: '#/$defs/place' }, lost: { $ref: '#/$defs/none' }, loop: { $ref: '#/$defs/loop' } }),
      $defs: { place: { type: 'integer' }, loop: { $ref: '#/$defs/loop' } },
    },
    [
      [['where=12'], '{"where":12}'],
      [['where=here'], "refused: where: 'here' is not an integer"],
      [['lost=12'], '{"lost":12}'],
      [['lost=word'], '{"lost":"word"}'],
      [['loop=x'], '{"loop":"x"}'],
    ],
  ],
  closed: [
    object(
      { query: { type: 'string' }, limit: { type: 'integer' } },
      { required: ['query'], additionalProperties: false },
    ),
    [
      [[], 'needs query'],
      [['limit=5'], 'needs query'],
      [['--arg limit=5'], 'needs query'],
      [['query=x', 'limit=5'], '{"query":"x","limit":5}'],
      [['query=x', 'limt=5'], "refused: the tool has no parameter 'limt'"],
      [['query=x', '__proto__=5'], "refused: the tool has no parameter '__proto__'"],
      [['query=x', 'toString=5'], "refused: the tool has no parameter 'toString'"],
      [['{}'], '{}'],
      [['{"limt":1}'], '{"limt":1}'],
    ],
  ],
  json: [
    object({ a: { type: 'integer' }, s: { type: 'string' } }, { required: ['a'] }),
    [
      [[`{ "a" : ${big} }`], `{ "a" : ${big} }`],
      [['{"a":"wrong on purpose"}'], '{"a":"wrong on purpose"}'],
      [['{"a":1,"s":"x=y"}'], '{"a":1,"s":"x=y"}'],
      [[`{"a":${big},"s":"x"}`, '--arg s=007'], `{"a":${big},"s":"007"}`],
      [[`{"a":${big}}`, 's=é'], `{"a":${big},"s":"é"}`],
      [['{"a":1.10,"deep":{"n":1e2}}', 'a=2'], '{"a":2,"deep":{"n":1e2}}'],
      [['[]'], 'refused: the arguments are neither a JSON object nor name=value'],
      [['null'], 'refused: the arguments are neither a JSON object nor name=value'],
      [['{"a":1'], 'refused: the arguments are neither a JSON object nor name=value'],
      [['word'], 'refused: the arguments are neither a JSON object nor name=value'],
      [['{}', '{}'], "refused: '{}' is an unexpected argument"],
      [['--arg =1'], 'refused: --arg needs a name and a value'],
      [['--arg a'], 'refused: --arg needs a name and a value'],
    ],
  ],
  none: [
    undefined,
    [
      [[], '{}'],
      [['a=1', 'b=two words', 'c="3"', 'd={"e":[]}', 'f==x'], '{"a":1,"b":"two words","c":"3","d":{"e":[]},"f":"=x"}'],
      [[`n=${big}`], `{"n":${big}}`],
      [['zip=01234'], '{"zip":"01234"}'],
      [['on=true'], '{"on":true}'],
      [['s=null'], '{"s":null}'],
      [['s:="01"'], '{"s":"01"}'],
      [['s:=01'], "refused: s: '01' is not JSON"],
      [['a-b.c=1'], '{"a-b.c":1}'],
      [['a"b=1'], '{"a\\"b":1}'],
      [['é=ü'], '{"é":"ü"}'],
      [['n=@n.json'], '{"n":18446744073709551615}'],
      [['t=@note.txt'], '{"t":"two\\nlines é\\n"}'],
      [['t=-1'], '{"t":-1}'],
      [['t=--x'], '{"t":"--x"}'],
      [['{"a":1}', 'a=2', '--arg b=3'], '{"a":2,"b":3}'],
    ],
  ],
};

describe('AC-E16 arguments are converted by the schema of the tool', () => {
  test('there are 120 cases against 12 schemas', () => {
    expect(Object.keys(cases)).toHaveLength(12);
    expect(Object.values(cases).flatMap(([, lines]) => lines).length).toBeGreaterThanOrEqual(120);
  });
  describe.each(Object.entries(cases))('%s', (_name, [schema, lines]) => {
    test.each(lines)('%j: %s', async (line, json) => {
      expect(await sent(schema, line)).toBe(json);
    });
  });
});

test('arguments that do not fit a frame of the control socket are refused', async () => {
  expect(await sent(undefined, [`t=${'x'.repeat(1_000_000)}`])).toMatch(
    /^refused: the arguments have 1000008 characters/,
  );
});
