/**
 * Every error and log text of the sources, read from the syntax tree: the arguments of `new HostError(code, message, { hint })`,
 * directly or through a function that builds the error from its parameters, and the lines that commands log.
 * A placeholder is shown by its name, as in `server '<server>'`; a part that may be missing is in brackets.
 */
import path from 'node:path';
import { parseAst } from 'vitest/node';

export interface ErrorText {
  readonly code: string;
  readonly text: string;
  readonly hint: string;
}

export interface LogText {
  readonly level: string;
  readonly text: string;
}

/** Path to source text. */
export type Sources = Readonly<Record<string, string>>;

type Node = Record<string, unknown> & { type: string; start: number };
type Env = ReadonlyMap<string, readonly string[]>;

/** A function whose parameters become part of an error. */
interface Builder {
  readonly file: string;
  readonly params: readonly Node[];
  readonly created: Node;
}

const alternativesMax = 12;

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';
const list = (value: unknown): Node[] => (Array.isArray(value) ? value.filter(isNode) : []);
const nameOf = (node: unknown): string => (isNode(node) ? String(node.name ?? nameOf(node.property)) : '');

function* childrenOf(node: Node): Generator<Node> {
  for (const value of Object.values(node))
    for (const each of Array.isArray(value) ? value : [value]) if (isNode(each)) yield each;
}

function* nodesOf(node: Node): Generator<Node> {
  yield node;
  for (const child of childrenOf(node)) yield* nodesOf(child);
}

const isFunction = ({ type }: Node): boolean =>
  /^(?:FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/.test(type);

/** Parameters with their defaults, by position; a destructured one has no name. */
const paramNames = (params: readonly Node[]): { name: string; initial: Node | undefined }[] =>
  params.map((param) =>
    param.type === 'AssignmentPattern'
      ? { name: nameOf(param.left), initial: param.right as Node }
      : { name: param.type === 'Identifier' ? nameOf(param) : '', initial: undefined },
  );

class Extractor {
  readonly #trees: ReadonlyMap<string, Node>;
  /** Constants of a file that hold text. */
  readonly #constants = new Map<string, ReadonlyMap<string, Node>>();
  readonly #builders = new Map<string, Builder[]>();
  /** Of each file: imported name to the file it comes from. */
  readonly #imports = new Map<string, ReadonlyMap<string, string>>();
  readonly errors: ErrorText[] = [];

  constructor(sources: Sources) {
    this.#trees = new Map(
      Object.entries(sources).map(([file, text]) => [file, parseAst(text, { lang: 'ts' }) as unknown as Node]),
    );
    for (const [file, tree] of this.#trees) {
      this.#constants.set(file, constantsOf(tree));
      this.#imports.set(file, importsOf(file, tree));
    }
    for (const [file, tree] of this.#trees) this.#findBuilders(file, tree);
    for (const [file, tree] of this.#trees) this.#findErrors(file, tree);
  }

  /** Functions by name whose body creates an error. */
  #findBuilders(file: string, tree: Node): void {
    for (const node of nodesOf(tree)) {
      const isNamed = node.type === 'FunctionDeclaration';
      const made = isNamed ? node : node.type === 'VariableDeclarator' ? (node.init as Node | null) : undefined;
      if (!made || !isFunction(made)) continue;
      for (const created of nodesOf(made.body as Node))
        if (
          isCreation(created) &&
          usesAny(
            created,
            paramNames(list(made.params)).map(({ name }) => name),
          )
        ) {
          const name = nameOf(node.id);
          this.#builders.set(name, [...(this.#builders.get(name) ?? []), { file, params: list(made.params), created }]);
        }
    }
  }

  #findErrors(file: string, tree: Node): void {
    const built = new Set([...this.#builders.values()].flat().map(({ created }) => created));
    for (const node of nodesOf(tree)) {
      if (isCreation(node) && !built.has(node)) this.#add(file, node, new Map());
      else if (node.type === 'CallExpression') this.#call(file, node);
    }
  }

  /** A call of a builder: its arguments take the place of the parameters. */
  #call(file: string, call: Node): void {
    if (!isNode(call.callee) || call.callee.type !== 'Identifier') return;
    const name = nameOf(call.callee);
    const from = this.#imports.get(file)?.get(name) ?? file;
    for (const builder of (this.#builders.get(name) ?? []).filter((each) => each.file === from)) {
      const args = list(call.arguments);
      const env = new Map(
        paramNames(builder.params).map(({ name, initial }, at) => {
          const given = args[at];
          if (given) return [name, this.text(file, given, new Map())] as const;
          return [name, initial ? this.text(builder.file, initial, new Map()) : ['']] as const;
        }),
      );
      this.#add(builder.file, builder.created, env);
    }
  }

  #add(file: string, created: Node, env: Env): void {
    const [code, message, options] = list(created.arguments);
    if (!code || !message) return;
    const hints = options ? this.#hint(file, options, env) : [''];
    for (const each of this.text(file, code, env))
      for (const text of this.text(file, message, env))
        for (const hint of hints) this.errors.push({ code: each, text, hint });
  }

  #hint(file: string, options: Node, env: Env): readonly string[] {
    for (const property of list(options.properties)) {
      if (property.type === 'SpreadElement' || nameOf(property.key) !== 'hint') continue;
      return this.text(file, property.value as Node, env);
    }
    return [''];
  }

  /** What the expression may be. */
  text(file: string, node: Node, env: Env, inTemplate = false): readonly string[] {
    const again = (each: unknown) => this.text(file, each as Node, env, inTemplate);
    switch (node.type) {
      case 'Literal':
        return [typeof node.value === 'string' ? node.value : `${String(node.value)}`];
      case 'TemplateLiteral':
        return this.#template(file, node, env);
      case 'ConditionalExpression':
        return unique([...again(node.consequent), ...again(node.alternate)]);
      case 'LogicalExpression':
        return unique([...again(node.left), ...again(node.right)].filter((each) => each !== 'undefined'));
      case 'BinaryExpression':
        return product(again(node.left), again(node.right));
      case 'Identifier': {
        const name = nameOf(node);
        if (name === 'undefined') return [''];
        const constant = this.#constants.get(file)?.get(name);
        return (
          env.get(name) ??
          (constant && constant !== node ? this.text(file, constant, new Map(), inTemplate) : [`<${name}>`])
        );
      }
      case 'CallExpression':
        return this.#callText(file, node, env);
      case 'MemberExpression':
        return [`<${nameOf(node.property)}>`];
      case 'TSAsExpression':
      case 'TSNonNullExpression':
      case 'ParenthesizedExpression':
        return again(node.expression);
      default:
        return ['<text>'];
    }
  }

  #template(file: string, { quasis, expressions }: Node, env: Env): readonly string[] {
    const texts = list(quasis).map(({ value }) => (value as { cooked: string }).cooked);
    return list(expressions).reduce<readonly string[]>(
      (before, expression, at) => {
        const found = this.text(file, expression, env, true);
        // A part that is empty in one case is optional.
        const filled = found.filter((each) => each !== '');
        const parts = filled.length < found.length && filled.length > 0 ? [`[${filled.join(' | ')}]`] : found;
        return product(product(before, parts), [texts[at + 1] ?? '']);
      },
      [texts[0] ?? ''],
    );
  }

  /** `text.slice(0, 100)`, `neutraliseLine(text, 100)` and `String(text)` are the text. */
  #callText(file: string, { callee, arguments: args }: Node, env: Env): readonly string[] {
    const [first] = list(args);
    if (
      isNode(callee) &&
      callee.type === 'MemberExpression' &&
      /^(?:slice|trim|toString|toLowerCase|join)$/.test(nameOf(callee))
    )
      return this.text(file, callee.object as Node, env);
    if (nameOf(callee) === 'usageOf') return ['usage: hostler <command> <usage>'];
    return first && /^(?:neutralise\w*|String|shown?|text|redact|quoted|oneLine)$/.test(nameOf(callee))
      ? this.text(file, first, env)
      : [`<${nameOf(callee)}>`];
  }
}

function importsOf(file: string, tree: Node): ReadonlyMap<string, string> {
  const found = new Map<string, string>();
  for (const { type, source, specifiers } of list(tree.body)) {
    const { value } = (source ?? {}) as { value?: unknown };
    if (type !== 'ImportDeclaration' || typeof value !== 'string' || !value.startsWith('.')) continue;
    const from = path.posix.join(path.posix.dirname(file), value).replace(/\.js$/, '.ts');
    for (const { local } of list(specifiers)) found.set(nameOf(local), from);
  }
  return found;
}

/** Top-level and local constants that are initialised with text. */
function constantsOf(tree: Node): ReadonlyMap<string, Node> {
  const found = new Map<string, Node>();
  for (const node of nodesOf(tree)) {
    const { init } = node as { init?: unknown };
    if (node.type !== 'VariableDeclarator' || !isNode(init) || !isNode(node.id) || node.id.type !== 'Identifier')
      continue;
    if (/^(?:Literal|TemplateLiteral|ConditionalExpression)$/.test(init.type)) found.set(nameOf(node.id), init);
  }
  return found;
}

const isCreation = (node: Node): boolean => node.type === 'NewExpression' && nameOf(node.callee) === 'HostError';

function usesAny(node: Node, names: readonly string[]): boolean {
  const [code, message, options] = list(node.arguments);
  const hint = list(options?.properties).find((each) => nameOf(each.key) === 'hint');
  // A name in a placeholder is shown as such: only whole texts are worth looking up.
  const whole = [code, message, hint?.value].filter(isNode).flatMap(wholeNames);
  return whole.some((name) => names.includes(name));
}

/** Identifiers that are the text, or one of its larger parts. */
function wholeNames(node: Node): string[] {
  if (node.type === 'Identifier') return [nameOf(node)];
  if (node.type === 'ConditionalExpression')
    return [node.consequent, node.alternate].filter(isNode).flatMap(wholeNames);
  if (node.type === 'TemplateLiteral')
    return list(node.expressions).flatMap((each) =>
      /^(?:what|why|problem|text|message|how)$/.test(nameOf(each)) ? [nameOf(each)] : [],
    );
  return [];
}

const unique = (texts: readonly string[]): string[] => [...new Set(texts)];
const product = (before: readonly string[], after: readonly string[]): readonly string[] =>
  before.flatMap((a) => after.map((b) => a + b)).slice(0, alternativesMax);

export function errorTexts(sources: Sources): ErrorText[] {
  const { errors } = new Extractor(sources);
  // A text of placeholders alone comes from elsewhere: from a server, or from another error.
  const isText = ({ code, text }: ErrorText) => !code.startsWith('<') && /[a-z]{2}/i.test(text.replace(/<[^>]*>/g, ''));
  const key = ({ code, text, hint }: ErrorText) => `${code}\0${text}\0${hint}`;
  const byKey = new Map(errors.filter(isText).map((error) => [key(error), error]));
  return [...byKey].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, error]) => error);
}

const levels = /^(?:error|warn|info|debug)$/;

/** `write(level, text)`, `logText(level, text)`, `writeLog(level, text)`, `[level, text]` and `{ level, text }`. */
export function logTexts(sources: Sources): LogText[] {
  const extractor = new Extractor(sources);
  const found: LogText[] = [];
  const add = (file: string, level: Node | undefined, text: Node | undefined) => {
    if (!level || !text) return;
    for (const shown of extractor.text(file, text, new Map()))
      if (!/^<[^>]*>$/.test(shown) && shown !== '')
        found.push({
          level: extractor
            .text(file, level, new Map())
            .filter((each) => levels.test(each))
            .join(' or '),
          text: shown,
        });
  };
  for (const [file, text] of Object.entries(sources))
    for (const node of nodesOf(parseAst(text, { lang: 'ts' }) as unknown as Node)) {
      const pair =
        node.type === 'CallExpression'
          ? list(node.arguments)
          : node.type === 'ArrayExpression'
            ? list(node.elements)
            : [];
      const isPair =
        pair.length === 2 &&
        (node.type === 'ArrayExpression' || /^(?:write|writeLog|#?logText)$/.test(nameOf(node.callee)));
      if (isPair && extractor.text(file, pair[0] as Node, new Map()).some((each) => levels.test(each)))
        add(file, pair[0], pair[1]);
      if (node.type !== 'ObjectExpression') continue;
      const member = (name: string) =>
        list(node.properties).find((each) => nameOf(each.key) === name)?.value as Node | undefined;
      add(file, member('level'), member('text'));
    }
  const isLogged = ({ level }: LogText) => level !== '';
  return [...new Map(found.filter(isLogged).map((each) => [each.text, each])).values()].sort((a, b) =>
    a.text < b.text ? -1 : 1,
  );
}
