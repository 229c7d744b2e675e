/**
 * The content of the conformance fixture: tools that answer at once, resources and prompts, named as in the official suite.
 * Not here: tools that ask the client (fixture-input.mjs), tools that take time or send notifications (fixture-calls.mjs), the
 * transports (fixture-server.mjs).
 */
import { ProtocolError, ProtocolErrorCode } from '@modelcontextprotocol/server';

/** One red pixel. */
export const png = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
/** A WAV file with a header and no samples. */
const wav = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=';

export const text = (value) => ({ content: [{ type: 'text', text: value }] });
const image = { type: 'image', data: png, mimeType: 'image/png' };
export const noArguments = { type: 'object', properties: {} };

/** Every keyword must reach clients unchanged. */
const schema2020 = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      $anchor: 'addressDef',
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema; nobody awaits this.
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

/** Name -> description, inputSchema, run(arguments, context). */
export const plainTools = {
  test_simple_text: {
    description: 'Answers with text',
    run: () => text('This is a simple text response for testing.'),
  },
  test_image_content: { description: 'Answers with an image', run: () => ({ content: [image] }) },
  test_audio_content: {
    description: 'Answers with sound',
    run: () => ({ content: [{ type: 'audio', data: wav, mimeType: 'audio/wav' }] }),
  },
  test_embedded_resource: {
    description: 'Answers with a resource',
    run: () => ({
      content: [
        {
          type: 'resource',
          resource: {
            uri: 'test://embedded-resource',
            mimeType: 'text/plain',
            text: 'This is an embedded resource content.',
          },
        },
      ],
    }),
  },
  test_multiple_content_types: {
    description: 'Answers with text, an image and a resource',
    run: () => ({
      content: [
        { type: 'text', text: 'Multiple content types test:' },
        image,
        {
          type: 'resource',
          resource: {
            uri: 'test://mixed-content-resource',
            mimeType: 'application/json',
            text: '{"test":"data","value":123}',
          },
        },
      ],
    }),
  },
  test_error_handling: {
    description: 'Fails',
    run: () => ({ ...text('This tool intentionally returns an error for testing'), isError: true }),
  },
  json_schema_2020_12_tool: {
    description: 'Tool with JSON Schema 2020-12 features',
    inputSchema: schema2020,
    run: (args) => text(`JSON Schema 2020-12 tool called with: ${JSON.stringify(args)}`),
  },
  test_x_mcp_header: {
    description: 'Takes an argument that is repeated in a header',
    inputSchema: {
      type: 'object',
      properties: { region: { type: 'string', 'x-mcp-header': 'Region' }, query: { type: 'string' } },
      required: ['region'],
    },
    run: (args) => text(`region=${args.region}`),
  },
};

export const resources = [
  { uri: 'test://static-text', name: 'Static text', description: 'Text that stays', mimeType: 'text/plain' },
  { uri: 'test://static-binary', name: 'Static image', description: 'An image that stays', mimeType: 'image/png' },
  { uri: 'test://watched-resource', name: 'Watched', description: 'To subscribe to', mimeType: 'text/plain' },
];

export const resourceTemplates = [
  {
    uriTemplate: 'test://template/{id}/data',
    name: 'Data by id',
    description: 'Data of one id',
    mimeType: 'application/json',
  },
];

export function readResource(uri) {
  const contents = (more) => ({ contents: [{ uri, ...more }] });
  if (uri === 'test://static-text') {
    return contents({ mimeType: 'text/plain', text: 'This is the content of the static text resource.' });
  }
  if (uri === 'test://static-binary') return contents({ mimeType: 'image/png', blob: png });
  if (uri === 'test://watched-resource') return contents({ mimeType: 'text/plain', text: 'Watched resource content' });
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (id !== undefined) {
    const data = { id, templateTest: true, data: `Data for ID: ${id}` };
    return contents({ mimeType: 'application/json', text: JSON.stringify(data) });
  }
  throw new ProtocolError(ProtocolErrorCode.InvalidParams, 'Resource not found', { uri });
}

const user = (content) => ({ role: 'user', content });
const says = (value) => user({ type: 'text', text: value });

/** Name -> description, arguments, run(arguments, context). */
export const plainPrompts = {
  test_simple_prompt: {
    description: 'No arguments',
    run: () => ({ messages: [says('This is a simple prompt for testing.')] }),
  },
  test_prompt_with_arguments: {
    description: 'Two arguments',
    arguments: [
      { name: 'arg1', description: 'First test argument', required: true },
      { name: 'arg2', description: 'Second test argument', required: true },
    ],
    run: ({ arg1, arg2 }) => ({ messages: [says(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)] }),
  },
  test_prompt_with_embedded_resource: {
    description: 'Carries a resource',
    arguments: [{ name: 'resourceUri', description: 'URI of the resource to embed', required: true }],
    run: ({ resourceUri }) => ({
      messages: [
        user({
          type: 'resource',
          resource: { uri: resourceUri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' },
        }),
        says('Please process the embedded resource above.'),
      ],
    }),
  },
  test_prompt_with_image: {
    description: 'Carries an image',
    run: () => ({ messages: [user(image), says('Please analyze the image above.')] }),
  },
};

/** Any argument completes to one of a few towns. */
export function complete(value) {
  const values = ['paris', 'park', 'party', 'berlin', 'bern'].filter((each) => each.startsWith(value));
  return { completion: { values, total: values.length, hasMore: false } };
}
