/**
 * A broker in a process of its own, started with `fork`: the first message says its folder and credentials, it answers with its
 * address, and the second with how much a connection left unread at most and who was lost. Unasked it says that one was cut.
 */
import process from 'node:process';
import { WebSocket } from 'ws';
import { openBroker } from '../../dist/broker/embedded/broker.js';
import { openBrokerStore } from '../../dist/broker/store/broker-store.js';
import { systemClock } from '../../dist/kernel/clock.js';

let bufferedMax = 0;
/** When a connection last left more unread than any before. */
let fullAtMs = 0;
const wallMs = () => performance.timeOrigin + performance.now();
const { send } = WebSocket.prototype;
WebSocket.prototype.send = function (...args) {
  send.apply(this, args);
  // The last words to whoever is cut are no message.
  if (this.bufferedAmount <= bufferedMax + 1_000) return;
  bufferedMax = this.bufferedAmount;
  fullAtMs = wallMs();
};
const cut = [];
let broker;
process.on('disconnect', () => process.exit(0));
process.on('message', async ({ folder, credentials }) => {
  if (broker) return process.send({ bufferedMax, fullAtMs, cut, ...broker.status() });
  const store = await openBrokerStore({ folder, clock: systemClock });
  broker = await openBroker({
    ...{ store: store.mail, clock: systemClock, credentials, listen: { port: 0 } },
    onEvent(event) {
      if (event.kind !== 'disconnected') return;
      const { reason, who } = event;
      cut.push({ mailbox: who.mailbox, reason, atMs: wallMs() });
      if (reason === 'slow_consumer') process.send({ isCut: true });
    },
  });
  process.send({ url: broker.url });
});
