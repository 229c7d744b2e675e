/**
 * The tools and the prompt of the conformance fixture that ask the client: elicitation, sampling, roots.
 * All of them answer `input_required`; for a client of the legacy era the SDK turns that into requests to the client.
 * Not here: tools that do not ask the client (fixture-content.mjs, fixture-calls.mjs).
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { inputRequired, MissingRequiredClientCapabilityError, ProtocolError } from '@modelcontextprotocol/server';
import { noArguments, text } from './fixture-content.mjs';

const invalidParams = -32602;
const key = 'a key that guards nothing but the conformance fixture';

/** Seals state that the client must return unchanged. */
function seal(state) {
  const body = Buffer.from(JSON.stringify(state)).toString('base64url');
  return `${body}.${createHmac('sha256', key).update(body).digest('base64url')}`;
}

function unseal(sealed) {
  const [body = '', sum = ''] = String(sealed).split('.');
  const wanted = createHmac('sha256', key).update(body).digest();
  const given = Buffer.from(sum, 'base64url');
  if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) {
    throw new ProtocolError(invalidParams, 'requestState failed its integrity check');
  }
  return JSON.parse(Buffer.from(body, 'base64url').toString('utf8'));
}

const form = (message, properties, required = Object.keys(properties)) => ({
  method: 'elicitation/create',
  params: { mode: 'form', message, requestedSchema: { type: 'object', properties, required } },
});
const sample = (prompt, maxTokens) => ({
  method: 'sampling/createMessage',
  params: { messages: [{ role: 'user', content: { type: 'text', text: prompt } }], maxTokens },
});
const roots = { method: 'roots/list' };

const ask = (inputRequests, state) =>
  inputRequired({ inputRequests, ...(state !== undefined && { requestState: seal(state) }) });

/** The answer with this key, if it has the form of an elicitation answer. */
function elicited({ mcpReq }, name) {
  const answer = mcpReq.inputResponses?.[name];
  return typeof answer?.action === 'string' ? answer : undefined;
}
const sampled = ({ mcpReq }, name) => mcpReq.inputResponses?.[name]?.content;
const listed = ({ mcpReq }, name) => mcpReq.inputResponses?.[name]?.roots;
const stateOf = ({ mcpReq }) => {
  const state = mcpReq.requestState();
  return state === undefined ? undefined : unseal(state);
};

/** A tool that elicits one form and returns the answer. */
const asksForm = (description, lead, request, inputSchema) => ({
  description,
  inputSchema,
  run: (args, context) => {
    const answer = elicited(context, 'answer');
    if (answer === undefined) return ask({ answer: request(args) });
    return text(`${lead}: action=${answer.action}, content=${JSON.stringify(answer.content ?? {})}`);
  },
});
const oneText = (name) => ({ type: 'object', properties: { [name]: { type: 'string' } }, required: [name] });
const titled = (word) =>
  ['value1', 'value2', 'value3'].map((each, at) => ({ const: each, title: `${word} ${at + 1}` }));
const options = ['option1', 'option2', 'option3'];

const defaults = {
  name: { type: 'string', description: 'User name', default: 'John Doe' },
  age: { type: 'integer', description: 'User age', default: 30 },
  score: { type: 'number', description: 'User score', default: 95.5 },
  status: { type: 'string', description: 'User status', enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', description: 'Verification status', default: true },
};
const enums = {
  untitledSingle: { type: 'string', enum: options },
  titledSingle: { type: 'string', oneOf: titled('Option') },
  legacyEnum: {
    type: 'string',
    enum: ['opt1', 'opt2', 'opt3'],
    enumNames: ['Option One', 'Option Two', 'Option Three'],
  },
  untitledMulti: { type: 'array', items: { type: 'string', enum: options } },
  titledMulti: { type: 'array', items: { anyOf: titled('Choice') } },
};
const account = {
  username: { type: 'string', description: "User's response" },
  email: { type: 'string', description: "User's email address" },
};
const name = { name: { type: 'string' } };

export const inputTools = {
  test_sampling: {
    description: 'Asks the client’s model',
    inputSchema: oneText('prompt'),
    run: (args, context) => {
      const content = sampled(context, 'answer');
      return content === undefined ? ask({ answer: sample(args.prompt, 100) }) : text(`LLM response: ${content.text}`);
    },
  },
  test_elicitation: asksForm(
    'Asks the user',
    'User response',
    ({ message }) => form(message, account),
    oneText('message'),
  ),
  test_elicitation_sep1034_defaults: asksForm('Asks with defaults', 'Elicitation completed', () =>
    form('Please review and update the form fields with defaults', defaults, []),
  ),
  test_elicitation_sep1330_enums: asksForm('Asks with choices', 'Elicitation completed', () =>
    form('Please select options from the enum fields', enums, []),
  ),
  test_streaming_elicitation: {
    description: 'Tells of progress, then asks',
    run: async (_args, context) => {
      if (elicited(context, 'confirm') !== undefined) return text('confirmed');
      const progressToken = context.mcpReq._meta?.progressToken;
      if (progressToken !== undefined) {
        await context.mcpReq.notify({
          method: 'notifications/progress',
          params: { progressToken, progress: 1, total: 2 },
        });
      }
      return ask({ confirm: form('Please confirm', { ok: { type: 'boolean' } }) });
    },
  },
  test_missing_capability: {
    description: 'Needs a client that can sample',
    run: (_args, context) => {
      if (context.capabilities.sampling === undefined) {
        throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { sampling: {} } });
      }
      return text('the client can sample');
    },
  },
  test_input_required_result_elicitation: {
    description: 'Asks for a name',
    run: (_args, context) => {
      const given = elicited(context, 'user_name')?.content?.name;
      return typeof given === 'string'
        ? text(`Hello, ${given}!`)
        : ask({ user_name: form('What is your name?', name) });
    },
  },
  test_input_required_result_sampling: {
    description: 'Asks the client’s model for a capital',
    run: (_args, context) => {
      const content = sampled(context, 'capital_question');
      if (content !== undefined) return text(`The model says: ${content.text}`);
      return ask({ capital_question: sample('What is the capital of France?', 100) });
    },
  },
  test_input_required_result_list_roots: {
    description: 'Asks for roots',
    run: (_args, context) => {
      const given = listed(context, 'client_roots');
      return given === undefined
        ? ask({ client_roots: roots })
        : text(`Roots: ${given.map(({ uri }) => uri).join(', ')}`);
    },
  },
  test_input_required_result_request_state: stateful('confirm', 'state-ok'),
  test_input_required_result_tampered_state: stateful('confirm', 'state-ok'),
  test_input_required_result_multiple_inputs: {
    description: 'Asks for three things at once',
    run: (_args, context) => {
      const state = stateOf(context);
      const given = [elicited(context, 'user_name'), sampled(context, 'greeting'), listed(context, 'client_roots')];
      if (state !== undefined && given.every((each) => each !== undefined)) {
        return text(`${given[1].text} ${given[0].content?.name}, ${given[2].length} roots`);
      }
      const greeting = sample('Generate a greeting', 50);
      return ask({ user_name: form('What is your name?', name), greeting, client_roots: roots }, { asked: 3 });
    },
  },
  test_input_required_result_multi_round: {
    description: 'Asks twice, one after the other',
    run: (_args, context) => {
      const state = stateOf(context);
      const step1 = elicited(context, 'step1')?.content?.name;
      const step2 = elicited(context, 'step2')?.content?.color;
      if (state?.round === 2 && step2 !== undefined) return text(`${state.name} likes ${step2}`);
      if (state?.round === 1 && step1 !== undefined) {
        const request = form('Step 2: What is your favorite color?', { color: { type: 'string' } });
        return ask({ step2: request }, { round: 2, name: step1 });
      }
      return ask({ step1: form('Step 1: What is your name?', name) }, { round: 1 });
    },
  },
  test_input_required_result_capabilities: {
    description: 'Asks only what the client can be asked',
    run: (_args, context) => {
      if (context.mcpReq.inputResponses !== undefined) return text('thank you');
      const { elicitation, sampling } = context.capabilities;
      const requests = {
        ...(elicitation !== undefined && { user_name: form('What is your name?', name) }),
        ...(sampling !== undefined && { greeting: sample('Generate a greeting', 50) }),
      };
      return Object.keys(requests).length === 0 ? text('nothing can be asked') : ask(requests);
    },
  },
};

function stateful(question, done) {
  return {
    description: 'Asks, and wants its state back as it was',
    run: (_args, context) => {
      const state = stateOf(context);
      if (state?.question === question && elicited(context, question) !== undefined) return text(done);
      return ask({ [question]: form('Please confirm', { ok: { type: 'boolean' } }) }, { question });
    },
  };
}
for (const tool of Object.values(inputTools)) tool.inputSchema ??= noArguments;

export const inputPrompts = {
  test_input_required_result_prompt: {
    description: 'Asks before it answers',
    run: (_args, context) => {
      const given = elicited(context, 'user_context')?.content?.context;
      if (given === undefined) {
        const request = form('What context should the prompt use?', { context: { type: 'string' } });
        return ask({ user_context: request });
      }
      return { messages: [{ role: 'user', content: { type: 'text', text: `In the context of ${given}` } }] };
    },
  },
};
