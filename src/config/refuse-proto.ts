/**
 * Refuses a member called `__proto__` in the tables at these paths. zod leaves such a member out of a record without an error, so a
 * variable, header or renamed tool of that name would be accepted and not take effect.
 */
export function refuseProto(entry: unknown, paths: readonly string[], refuse: (field: string) => Error): void {
  for (const path of paths) {
    const table = path.split('.').reduce(memberOf, entry);
    if (isObject(table) && Object.hasOwn(table, '__proto__')) throw refuse(`${path}.__proto__`);
  }
}

const memberOf = (value: unknown, name: string): unknown =>
  isObject(value) && Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined;

const isObject = (value: unknown): value is object => typeof value === 'object' && value !== null;
