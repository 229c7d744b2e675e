/**
 * A broker in a process of its own, to be killed. Arguments: folder, port, credentials as JSON. Prints one line when it serves:
 * its address, and how long that took since the process began. Ends with whoever started it.
 */
import process from 'node:process';
import { openBroker } from '../../../dist/broker/embedded/broker.js';
import { openBrokerStore } from '../../../dist/broker/store/broker-store.js';
import { systemClock } from '../../../dist/kernel/clock.js';

const [folder, port, credentials] = process.argv.slice(2);
process.stdin.on('end', () => process.exit(0)).resume();
const loadedMs = performance.now();
const store = await openBrokerStore({ folder, clock: systemClock });
const broker = await openBroker({
  store: store.mail,
  clock: systemClock,
  credentials: JSON.parse(credentials),
  limits: { rate: undefined },
  listen: { port: Number(port) },
});
const servingMs = performance.now();
console.log(JSON.stringify({ url: broker.url, openMs: servingMs - loadedMs, startMs: servingMs }));
