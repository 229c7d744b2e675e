/**
 * Collects every error and log text of the sources from the syntax tree: the arguments of `new HostError(code, message, { hint })`
 * and `notExecuted(code, message, hint)`, also in functions that build an error from parameters, and the lines that commands log.
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

type Node = Record<string, unknown> & { type: string; start: number; end: number };

/** One possible text of an expression, with the outcomes of the conditions that lead to it. */
interface Alternative {
  readonly text: string;
  readonly when: ReadonlyMap<string, boolean>;
}

type Env = ReadonlyMap<string, readonly Alternative[]>;

/** A constant or parameter, visible in a range of its file. Without `init` its text is unknown. */
interface Binding {
  readonly name: string;
  readonly scope: Node;
  readonly init: Node | undefined;
}

/** A function whose parameters become part of an error. */
interface Builder {
  readonly file: string;
  readonly params: readonly Node[];
  readonly created: Node;
}

const alternativesMax = 12;
/** Maximum nesting of calls from one builder to another. Some builders call themselves. */
const depthMax = 3;

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

/** Parameters with their defaults, by position. A destructured parameter has no name. */
const paramNames = (params: readonly Node[]): { name: string; initial: Node | undefined }[] =>
  params.map((param) =>
    param.type === 'AssignmentPattern'
      ? { name: nameOf(param.left), initial: param.right as Node }
      : { name: param.type === 'Identifier' ? nameOf(param) : '', initial: undefined },
  );

class Extractor {
  readonly #sources: Sources;
  readonly #trees: ReadonlyMap<string, Node>;
  readonly #bindings = new Map<string, readonly Binding[]>();
  readonly #builders = new Map<string, Builder[]>();
  /** For each file: the source file of each imported name. */
  readonly #imports = new Map<string, ReadonlyMap<string, string>>();
  readonly errors: ErrorText[] = [];

  constructor(sources: Sources) {
    this.#sources = sources;
    this.#trees = new Map(
      Object.entries(sources).map(([file, text]) => [file, parseAst(text, { lang: 'ts' }) as unknown as Node]),
    );
    for (const [file, tree] of this.#trees) {
      this.#bindings.set(file, bindingsOf(tree));
      this.#imports.set(file, importsOf(file, tree));
    }
    // A second pass finds functions that call the builders of the first.
    for (let pass = 0; pass < 2; pass++) for (const [file, tree] of this.#trees) this.#findBuilders(file, tree);
    for (const [file, tree] of this.#trees) this.#findErrors(file, tree);
  }

  /** Functions by name whose body creates an error. */
  #findBuilders(file: string, tree: Node): void {
    for (const node of nodesOf(tree)) {
      const isNamed = node.type === 'FunctionDeclaration';
      const made = isNamed ? node : node.type === 'VariableDeclarator' ? (node.init as Node | null) : undefined;
      if (!made || !isFunction(made)) continue;
      const params = list(made.params);
      const names = paramNames(params).map(({ name }) => name);
      const known = this.#builders.get(nameOf(node.id)) ?? [];
      for (const created of nodesOf(made.body as Node)) {
        const isNew = !known.some((each) => each.created === created);
        const isBuilding = isCreation(created) || this.#buildersFor(file, created).length > 0;
        if (isNew && isBuilding && usesAny(created, names)) known.push({ file, params, created });
      }
      if (known.length > 0) this.#builders.set(nameOf(node.id), known);
    }
  }

  /** The builders that a call may invoke. */
  #buildersFor(file: string, { type, callee }: Node): readonly Builder[] {
    if (type !== 'CallExpression' || !isNode(callee) || callee.type !== 'Identifier') return [];
    const from = this.#imports.get(file)?.get(nameOf(callee)) ?? file;
    return (this.#builders.get(nameOf(callee)) ?? []).filter((each) => each.file === from);
  }

  #findErrors(file: string, tree: Node): void {
    const built = new Set([...this.#builders.values()].flat().map(({ created }) => created));
    for (const node of nodesOf(tree)) {
      if (!built.has(node)) this.#add(file, node, new Map());
    }
  }

  /** Handles a call of a builder: its arguments replace the parameters. */
  #call(file: string, call: Node, env: Env, depth: number): void {
    for (const builder of this.#buildersFor(file, call)) {
      const args = list(call.arguments);
      const inner = new Map(
        paramNames(builder.params).map(({ name, initial }, at) => {
          const given = args[at];
          if (given) return [name, this.#alternatives(file, given, env)] as const;
          return [name, initial ? this.#alternatives(builder.file, initial, new Map()) : always('')] as const;
        }),
      );
      this.#add(builder.file, builder.created, inner, depth);
    }
  }

  #add(file: string, created: Node, env: Env, depth = 0): void {
    if (!isCreation(created)) return depth < depthMax ? this.#call(file, created, env, depth + 1) : undefined;
    const [code, message] = list(created.arguments);
    const hint = hintOf(created);
    if (!code || !message) return;
    const codes = this.#alternatives(file, code, env);
    const messages = this.#alternatives(file, message, env);
    const hints = hint ? this.#alternatives(file, hint, env) : always('');
    for (const { text } of join(join(codes, messages, '\0'), hints, '\0')) {
      const [code = '', message = '', hint = ''] = text.split('\0');
      this.errors.push({ code, text: message, hint });
    }
  }

  /** The texts that the expression may have. */
  text(file: string, node: Node): readonly string[] {
    return unique(this.#alternatives(file, node, new Map()).map(({ text }) => text));
  }

  #alternatives(file: string, node: Node, env: Env): readonly Alternative[] {
    const again = (each: unknown) => this.#alternatives(file, each as Node, env);
    switch (node.type) {
      case 'Literal':
        return always(typeof node.value === 'string' ? node.value : `${String(node.value)}`);
      case 'TemplateLiteral':
        return this.#template(file, node, env);
      case 'ConditionalExpression':
        return this.#conditional(file, node, env);
      case 'LogicalExpression':
        return [...again(node.left), ...again(node.right)].filter(({ text }) => text !== 'undefined');
      case 'BinaryExpression':
        return node.operator === '+' ? join(again(node.left), again(node.right)) : computed(node, again);
      case 'Identifier':
        return this.#identifier(file, node, env);
      case 'CallExpression':
        return this.#callText(file, node, env);
      case 'MemberExpression':
        return always(`<${nameOf(node.property)}>`);
      case 'TSAsExpression':
      case 'TSNonNullExpression':
      case 'ParenthesizedExpression':
        return again(node.expression);
      default:
        return always('<text>');
    }
  }

  #identifier(file: string, node: Node, env: Env): readonly Alternative[] {
    const name = nameOf(node);
    if (name === 'undefined') return always('');
    const found = (this.#bindings.get(file) ?? [])
      .filter((each) => each.name === name && isWithin(node, each.scope))
      .reduce<Binding | undefined>(
        (inner, each) => (inner && isWithin(inner.scope, each.scope) ? inner : each),
        undefined,
      );
    if (found?.init && found.init !== node) return this.#alternatives(file, found.init, env);
    return env.get(name) ?? always(`<${name}>`);
  }

  /** A message and its hint often depend on the same condition. Each branch records the outcome, so that both use the same one. */
  #conditional(file: string, { test, consequent, alternate }: Node, env: Env): readonly Alternative[] {
    const { subject, isNegated } = conditionOf(test as Node);
    const [yes, no] = [consequent, alternate].map((each) => this.#alternatives(file, each as Node, env));
    const known = subject.type === 'Identifier' ? env.get(nameOf(subject)) : undefined;
    // If a parameter is always or never empty here, only one branch is possible.
    for (const isEmpty of [true, false])
      if (known?.every(({ text }) => (text === '') === isEmpty)) return (isNegated === isEmpty ? yes : no) ?? [];
    const key = `${file} ${this.#functionAround(file, subject)} ${this.#sources[file]?.slice(subject.start, subject.end)}`;
    return [...noted(yes, key, !isNegated), ...noted(no, key, isNegated)];
  }

  #functionAround(file: string, node: Node): number {
    const tree = this.#trees.get(file) as Node;
    return [...nodesOf(tree)].filter((each) => isFunction(each) && isWithin(node, each)).at(-1)?.start ?? 0;
  }

  #template(file: string, { quasis, expressions }: Node, env: Env): readonly Alternative[] {
    const texts = list(quasis).map(({ value }) => (value as { cooked: string }).cooked);
    return list(expressions).reduce<readonly Alternative[]>(
      (before, expression, at) => {
        const found = this.#alternatives(file, expression, env);
        // A part that is empty in one case is optional.
        const filled = unique(found.map(({ text }) => text).filter((text) => text !== ''));
        const isOptional = found.some(({ text }) => text === '') && filled.length > 0;
        const parts = isOptional ? always(`[${filled.join(' | ')}]`) : found;
        return join(join(before, parts), always(texts[at + 1] ?? ''));
      },
      always(texts[0] ?? ''),
    );
  }

  /** Calls such as `text.slice(0, 100)`, `neutraliseLine(text, 100)` and `String(text)` count as the text itself. */
  #callText(file: string, { callee, arguments: args }: Node, env: Env): readonly Alternative[] {
    const [first] = list(args);
    const isMember = isNode(callee) && callee.type === 'MemberExpression';
    if (isMember && /^(?:slice|trim|toString|toLowerCase|join)$/.test(nameOf(callee)))
      return this.#alternatives(file, callee.object as Node, env);
    if (nameOf(callee) === 'usageOf') return always('usage: hostler <command> <usage>');
    return first && /^(?:neutralise\w*|String|shown?|text|redact|quoted|oneLine)$/.test(nameOf(callee))
      ? this.#alternatives(file, first, env)
      : always(`<${nameOf(callee)}>`);
  }
}

const always = (text: string): readonly Alternative[] => [{ text, when: new Map() }];

/** Computes an expression of constants, such as `openMs / 1_000`. */
function computed({ left, right, operator }: Node, again: (node: unknown) => readonly Alternative[]) {
  const [a, b] = [left, right].map((each) => Number(again(each)[0]?.text)) as [number, number];
  const value = { '/': a / b, '*': a * b, '-': a - b }[String(operator)];
  return always(Number.isFinite(value) ? String(value) : '<number>');
}

const noted = (found: readonly Alternative[] = [], key: string, outcome: boolean): Alternative[] =>
  found
    .filter(({ when }) => (when.get(key) ?? outcome) === outcome)
    .map(({ text, when }) => ({ text, when: new Map([...when, [key, outcome]]) }));

/** All pairs whose conditions do not contradict each other. */
const join = (before: readonly Alternative[], after: readonly Alternative[], between = ''): readonly Alternative[] =>
  before
    .flatMap((a) =>
      after
        .filter(({ when }) => [...when].every(([key, outcome]) => (a.when.get(key) ?? outcome) === outcome))
        .map((b) => ({ text: a.text + between + b.text, when: new Map([...a.when, ...b.when]) })),
    )
    .slice(0, alternativesMax);

/** Returns the subject of a condition: `x` for `!x`, `x !== undefined` and `x === ''`. */
function conditionOf(test: Node): { readonly subject: Node; readonly isNegated: boolean } {
  if (test.type === 'UnaryExpression' && test.operator === '!') {
    const { subject, isNegated } = conditionOf(test.argument as Node);
    return { subject, isNegated: !isNegated };
  }
  const isComparison = test.type === 'BinaryExpression' && /^[!=]==$/.test(String(test.operator));
  const { right } = test as { right?: Node };
  const isEmpty = right && ((right.type === 'Literal' && right.value === '') || nameOf(right) === 'undefined');
  if (!isComparison || !isEmpty) return { subject: test, isNegated: false };
  return { subject: test.left as Node, isNegated: test.operator === '===' };
}

const isWithin = (inner: Node, outer: Node): boolean => inner.start >= outer.start && inner.end <= outer.end;

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

/** Constants with an initial text, and parameters, each with the function or block in which it is visible. */
function bindingsOf(tree: Node): readonly Binding[] {
  const found: Binding[] = [];
  const visit = (node: Node, scope: Node): void => {
    const inner = isFunction(node) || node.type === 'BlockStatement' ? node : scope;
    if (isFunction(node))
      for (const { name } of paramNames(list(node.params))) found.push({ name, scope: node, init: undefined });
    const { init, id } = node as { init?: unknown; id?: unknown };
    if (node.type === 'VariableDeclarator' && isNode(id) && id.type === 'Identifier') {
      const isText = isNode(init) && /^(?:Literal|TemplateLiteral|ConditionalExpression)$/.test(init.type);
      found.push({ name: nameOf(id), scope, init: isText ? (init as Node) : undefined });
    }
    for (const child of childrenOf(node)) visit(child, inner);
  };
  visit(tree, tree);
  return found;
}

const isHelper = ({ type, callee }: Node): boolean => type === 'CallExpression' && nameOf(callee) === 'notExecuted';

const isCreation = (node: Node): boolean =>
  isHelper(node) || (node.type === 'NewExpression' && nameOf(node.callee) === 'HostError');

/** The hint is the third argument of `notExecuted`, and a property of the third argument of `new HostError`. */
function hintOf(created: Node): Node | undefined {
  const [, , third] = list(created.arguments);
  if (isHelper(created)) return third;
  return list(third?.properties).find((each) => nameOf(each.key) === 'hint')?.value as Node | undefined;
}

function usesAny(node: Node, names: readonly string[]): boolean {
  const args = list(node.arguments);
  // Only a parameter that is the code, the whole message or the hint matters. Other parameters are shown as `<name>`.
  const texts = isCreation(node) ? [args[0], args[1], hintOf(node)] : args;
  return texts
    .filter(isNode)
    .flatMap(wholeNames)
    .some((name) => names.includes(name));
}

/** Identifiers whose value is the whole text, one branch of it, or the part of a template that states the problem. */
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
export function errorTexts(sources: Sources): ErrorText[] {
  const { errors } = new Extractor(sources);
  // A text that consists of placeholders comes from a server or from another error, so it is left out.
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
    for (const shown of extractor.text(file, text))
      if (!/^<[^>]*>$/.test(shown) && shown !== '')
        found.push({
          level: extractor
            .text(file, level)
            .filter((each) => levels.test(each))
            .join(' or '),
          text: shown,
        });
  };
  for (const [file, text] of Object.entries(sources))
    for (const node of nodesOf(parseAst(text, { lang: 'ts' }) as unknown as Node)) {
      const pair = list(node.type === 'CallExpression' ? node.arguments : node.elements);
      const isPair =
        pair.length === 2 &&
        (node.type === 'ArrayExpression' || /^(?:write|writeLog|#?logText)$/.test(nameOf(node.callee)));
      if (isPair && extractor.text(file, pair[0] as Node).some((each) => levels.test(each)))
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
