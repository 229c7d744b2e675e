import { expect, test } from 'vitest';
import { FakeTransport } from '../../test/fakes/attached-transport.js';
import { FakeClock } from '../kernel/fake-clock.js';
import { Connector } from '../session/connector.js';
import { Host } from './host.js';

/** A server `x` that answers no call. `rotated` reports a rotated secret of its first run. */
async function open() {
  const clock = new FakeClock();
  const reports: (() => void)[] = [];
  const host = new Host({ clock, random: () => 0.5 }, (options) => {
    const connector = new Connector(options);
    const connect = connector.connect.bind(connector);
    connector.connect = (spec, given) => {
      reports.push(() => given?.onRotated?.());
      return connect(spec, given);
    };
    return connector;
  });
  let starts = 0;
  await host.attach('x', () => {
    starts++;
    return new FakeTransport({ ignores: ['tools/call'] });
  });
  const state = () => [host.status()[0]?.state, starts];
  return { clock, host, state, rotated: () => reports[0]?.() };
}

test('AC-K4 a rotated secret restarts the run that has the old one', async () => {
  const { clock, state, rotated } = await open();
  rotated();
  await clock.advanceAsync(100);
  expect(state()).toEqual(['ready', 2]);
  rotated();
  await clock.advanceAsync(100);
  expect(state()).toEqual(['ready', 2]);
});

test('AC-K4 a secret that is rotated while a stopped server is being closed does not start it again', async () => {
  const { clock, host, state, rotated } = await open();
  const called = host.call('x', 'say').catch(() => {});
  await clock.advanceAsync(0);
  const stopped = host.stop('x');
  rotated();
  await clock.advanceAsync(10_000);
  await Promise.all([stopped, called]);
  expect(state()).toEqual(['stopped', 1]);
});
