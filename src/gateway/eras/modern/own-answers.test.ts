import { expect, test } from 'vitest';
import { parsed } from '../../../../test/fakes/bridge-exchange.js';
import { inputRequiredResult } from './own-answers.js';

test('an input_required result that Hostler makes has each request under its key, and the state', () => {
  const requests = [
    { key: 'ask-1', method: 'elicitation/create', params: Buffer.from('{"message":"é"}') },
    { key: 'ask-2', method: 'roots/list', params: undefined },
  ];
  expect(parsed(inputRequiredResult(requests, 'sealed'))).toEqual({
    resultType: 'input_required',
    inputRequests: {
      'ask-1': { method: 'elicitation/create', params: { message: 'é' } },
      'ask-2': { method: 'roots/list' },
    },
    requestState: 'sealed',
  });
});
