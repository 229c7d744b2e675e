/** Requests of the modern era whose name or URI is repeated in the header `Mcp-Name`, and the member of params that holds it. */
const namedBy: Readonly<Record<string, string>> = {
  'tools/call': 'name',
  'prompts/get': 'name',
  'resources/read': 'uri',
  'tasks/get': 'taskId',
  'tasks/update': 'taskId',
  'tasks/cancel': 'taskId',
};

/** Undefined: the method names nothing. */
export const nameMember = (method: string): string | undefined =>
  Object.hasOwn(namedBy, method) ? namedBy[method] : undefined;
