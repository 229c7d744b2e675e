import { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { FakeClock } from '../../kernel/fake-clock.js';
import { UnadmittedSockets } from './unadmitted-sockets.js';

const from = '192.0.2.1';

function rig() {
  const clock = new FakeClock();
  let timeouts = 0;
  const unadmitted = new UnadmittedSockets(clock, () => timeouts++);
  const connect = (remotePort: number, localAddress: string, remoteAddress = from) => {
    const facts = { remoteAddress, remotePort, localAddress, isCut: false };
    const socket = Object.assign(new EventEmitter(), facts, {
      destroy: () => {
        socket.isCut = true;
        socket.emit('close');
      },
    });
    return { socket, isAccepted: unadmitted.add(socket as unknown as Socket) };
  };
  return { clock, unadmitted, connect, timeouts: () => timeouts };
}

test('D-53 one port that connects to two addresses of this machine has two sockets: both count, and both are cut', () => {
  const { clock, connect, timeouts } = rig();
  const accepted = Array.from({ length: 100 }, (_, port) => [
    connect(port, '198.51.100.1').isAccepted,
    connect(port, '198.51.100.2').isAccepted,
  ]);
  expect(accepted.flat().filter(Boolean)).toHaveLength(128);
  clock.advance(5_000);
  expect(timeouts()).toBe(128);
});

test('the admission of one of them does not free the other', () => {
  const { clock, unadmitted, connect, timeouts } = rig();
  const [one, other] = [connect(1, '198.51.100.1'), connect(1, '198.51.100.2')];
  unadmitted.admitted(one.socket as unknown as Socket);
  clock.advance(5_000);
  expect([one.socket.isCut, other.socket.isCut, timeouts()]).toEqual([false, true, 1]);
});

test('all addresses together have 1,024 sockets', () => {
  const { connect } = rig();
  const accepted = Array.from({ length: 2_000 }, (_, n) => connect(n, '198.51.100.1', `192.0.2.${n % 250}`).isAccepted);
  expect(accepted.filter(Boolean)).toHaveLength(1_024);
});
