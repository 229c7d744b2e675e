import { describe, expect, test } from 'vitest';
import { principalOf } from '../../../test/fakes/fake-exchange.js';
import { FakeUpstreams } from '../../../test/fakes/fake-upstreams.js';
import { isLogged, LogLevels } from './log-levels.js';

const logging = { tools: [], capabilities: '{"logging":{}}' };
const somebody = principalOf('somebody');

describe('a log', () => {
  test.each([
    [undefined, 'debug', true],
    ['info', 'debug', false],
    ['info', 'info', true],
    ['info', 'emergency', true],
    ['info', 'vendor', false],
  ] as const)('reaches a client with level %s if its own level is %s: %s', (level, own, expected) => {
    expect(isLogged(level, Buffer.from(JSON.stringify({ level: own })))).toBe(expected);
  });
});

describe('servers', () => {
  const make = () => {
    const upstreams = new FakeUpstreams({
      a: logging,
      rests: { ...logging, state: 'registered' },
      mute: { tools: [] },
      modern: { ...logging, era: 'modern' },
      own: { ...logging, definition: { isolation: 'per-client' } },
    });
    const levels = new LogLevels(upstreams);
    upstreams.onKnownChanged((server) => levels.changed(server));
    const sent = () => upstreams.requests.map(({ server, params }) => `${server} ${params}`);
    return { upstreams, levels, sent };
  };
  const all = ['a', 'rests', 'mute', 'modern', 'own'];

  test('get the most verbose level, if they are legacy, ready and support logging', () => {
    const { levels, sent } = make();
    levels.set('s1', 'warning', somebody, all);
    levels.set('s2', 'error', somebody, all);
    levels.set('s3', 'debug', somebody, all);
    levels.set('s4', 'debug', somebody, all);
    levels.set('s5', 'debug', somebody, ['mute']);
    expect(sent()).toEqual(['a {"level":"warning"}', 'a {"level":"debug"}']);
    expect([levels.of('s1'), levels.of('s3'), levels.of('other')]).toEqual(['warning', 'debug', undefined]);
  });

  test('are found for a session without a search through all servers', () => {
    const { levels } = make();
    let looks = 0;
    class Watched extends Array<string> {
      override includes(...args: Parameters<string[]['includes']>): boolean {
        looks += this.length;
        return super.includes(...args);
      }
    }
    for (let i = 0; i < 10; i++) levels.set(`s${i}`, 'info', somebody, Watched.from(all));
    expect(looks).toBe(0);
  });

  test('W28 get the level once in each session, and again after a session was renewed', () => {
    const { levels, sent, upstreams } = make();
    levels.set('s1', 'info', somebody, all);
    upstreams.renew('a');
    upstreams.setState('a', 'suspect');
    upstreams.setState('a', 'ready');
    expect(sent()).toEqual(['a {"level":"info"}', 'a {"level":"info"}']);
    levels.set('s2', 'debug', somebody, all);
    upstreams.renew('a');
    expect(sent().slice(2)).toEqual(['a {"level":"debug"}', 'a {"level":"debug"}']);
  });

  test('get the level again when they restart', () => {
    const { levels, sent, upstreams } = make();
    levels.set('s1', 'info', somebody, all);
    upstreams.setState('rests', 'ready');
    upstreams.setState('a', 'ready');
    upstreams.setState('a', 'backing_off');
    upstreams.setState('a', 'ready');
    expect(sent()).toEqual(['a {"level":"info"}', 'rests {"level":"info"}', 'a {"level":"info"}']);
    levels.forget('s1');
    upstreams.setState('a', 'backing_off');
    upstreams.setState('a', 'ready');
    expect(sent()).toHaveLength(3);
    expect(levels.of('s1')).toBeUndefined();
  });
});
