/** `hostler schema`: the JSON Schema of each `--json` output. */
import { didYouMean } from '../kernel/nearest-name.js';
import { type Command, jsonOption, usageError } from './command.js';
import { EXIT } from './exit-codes.js';
import { jsonSchemaOf, jsonShapes } from './json-shapes.js';
import { printJson } from './output/print.js';

type ShapeName = keyof typeof jsonShapes;

const names = Object.keys(jsonShapes) as ShapeName[];
const isShape = (name: string): name is ShapeName => Object.hasOwn(jsonShapes, name);

export const schema: Command = {
  name: 'schema',
  usage: '[COMMAND] [--json]',
  example: 'schema status',
  options: jsonOption,
  positionals: [0, 3],
  async run(args) {
    const about = args.positionals.join(' ');
    const wanted = about === '' ? names : names.filter((name) => name === about || name.startsWith(`${about} `));
    if (wanted.length === 0 || !wanted.every(isShape))
      throw usageError(
        schema,
        `there is no output '${about.slice(0, 100)}'`,
        `${didYouMean(about, names)}there are: ${names.join(', ')}`,
      );
    printJson({ shapes: Object.fromEntries(wanted.map((name) => [name, jsonSchemaOf(name)])) });
    return EXIT.done;
  },
};
